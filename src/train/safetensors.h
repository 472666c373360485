/* SPDX-License-Identifier: Apache-2.0 */
/* The safetensors format (github.com/huggingface/safetensors, README and tensor.rs): 8 bytes of
 * header length, a JSON header, packed little-endian tensors. The reader trusts nothing in a
 * file. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include "base/base.h"

/* Enumerator, name in files, bits an element; in the reference writer's ascending order. */
#define YOKE_DTYPE_TABLE(X)                                                                        \
    X(YOKE_DTYPE_BOOL, "BOOL", 8)                                                                  \
    X(YOKE_DTYPE_F4, "F4", 4)                                                                      \
    X(YOKE_DTYPE_F6_E2M3, "F6_E2M3", 6)                                                            \
    X(YOKE_DTYPE_F6_E3M2, "F6_E3M2", 6)                                                            \
    X(YOKE_DTYPE_U8, "U8", 8)                                                                      \
    X(YOKE_DTYPE_I8, "I8", 8)                                                                      \
    X(YOKE_DTYPE_F8_E5M2, "F8_E5M2", 8)                                                            \
    X(YOKE_DTYPE_F8_E4M3, "F8_E4M3", 8)                                                            \
    X(YOKE_DTYPE_F8_E8M0, "F8_E8M0", 8)                                                            \
    X(YOKE_DTYPE_F8_E4M3FNUZ, "F8_E4M3FNUZ", 8)                                                    \
    X(YOKE_DTYPE_F8_E5M2FNUZ, "F8_E5M2FNUZ", 8)                                                    \
    X(YOKE_DTYPE_I16, "I16", 16)                                                                   \
    X(YOKE_DTYPE_U16, "U16", 16)                                                                   \
    X(YOKE_DTYPE_F16, "F16", 16)                                                                   \
    X(YOKE_DTYPE_BF16, "BF16", 16)                                                                 \
    X(YOKE_DTYPE_I32, "I32", 32)                                                                   \
    X(YOKE_DTYPE_U32, "U32", 32)                                                                   \
    X(YOKE_DTYPE_F32, "F32", 32)                                                                   \
    X(YOKE_DTYPE_C64, "C64", 64)                                                                   \
    X(YOKE_DTYPE_F64, "F64", 64)                                                                   \
    X(YOKE_DTYPE_I64, "I64", 64)                                                                   \
    X(YOKE_DTYPE_U64, "U64", 64)

typedef enum yoke_dtype {
#define YOKE_DTYPE_ENUMERATOR(name, text, bits) name,
    YOKE_DTYPE_TABLE(YOKE_DTYPE_ENUMERATOR)
#undef YOKE_DTYPE_ENUMERATOR
        YOKE_DTYPE_COUNT
} yoke_dtype;

const char *yoke_dtype_name(yoke_dtype dtype);
unsigned yoke_dtype_bits(yoke_dtype dtype); /* of an element */

#define YOKE_FILE_TENSOR_DIMS 8
typedef struct yoke_file_tensor {
    const char *name;
    yoke_dtype dtype;
    int ndim;
    int64_t shape[YOKE_FILE_TENSOR_DIMS];
    size_t elements;
    size_t begin, bytes; /* behind the header */
} yoke_file_tensor;

/* An entry of __metadata__. */
typedef struct yoke_file_note {
    const char *key, *value;
} yoke_file_note;

/* A longer header is refused, by the writer too: 200,000 tensors need about 16 MiB, and no file of
 * weights has as many. The specification allows 100 MB. */
#define YOKE_HEADER_LIMIT ((size_t)16 << 20)
#define YOKE_HEADER_AT 8u /* behind the header's length */

/* An open file whose header is read and checked: names are unique, and the tensors fill the bytes
 * behind the header without holes or overlaps, each with the bytes that its shape and type need.
 * To open it reads the header alone, and costs at most 8 times its bytes; each call for values
 * reads them from the disk, or from the caller's memory, which must stay until close. */
typedef struct yoke_safetensors {
    char *path;
    yoke_file_reader reader;
    size_t bytes;              /* of the file */
    size_t data_at;            /* where the header ends and the tensors begin */
    char *header;              /* [data_at]; the names and notes lie in it */
    bool is_sealed;            /* the header is the one that was sealed (digest.h) */
    yoke_file_tensor *tensors; /* in the order of the data */
    int count;
    yoke_file_note *notes;
    int note_count;
    int *by_name, *by_key; /* indices of tensors and notes in the order of their names */
} yoke_safetensors;

/* MISSING, IO (also a pipe or device), or DATA; the error names the path, the problem and its
 * position. */
yoke_status yoke_safetensors_open(yoke_safetensors *file, const yoke_file_source *source);
/* Also takes a zeroed one. */
void yoke_safetensors_close(yoke_safetensors *file);

/* The value of an entry of __metadata__, or NULL; and of the key prefix + key. */
const char *yoke_safetensors_note(const yoke_safetensors *file, const char *key);
const char *yoke_safetensors_note_of(const yoke_safetensors *file, const char *prefix,
                                     const char *key);
/* The tensor of this name, or NULL; and of the name prefix + name. */
const yoke_file_tensor *yoke_safetensors_find(const yoke_safetensors *file, const char *name);
const yoke_file_tensor *yoke_safetensors_find_of(const yoke_safetensors *file, const char *prefix,
                                                 const char *name);
/* Bytes of a tensor, from `offset` of them on. IO. */
yoke_status yoke_safetensors_bytes(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                   size_t offset, void *bytes, size_t count);
/* F16, BF16, F32 and F64 as float, or DATA naming the tensor's type; IO. values[tensor->elements].
 */
yoke_status yoke_safetensors_floats(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                    float *values);
yoke_status yoke_safetensors_doubles(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     double *values);
bool yoke_dtype_is_float(yoke_dtype dtype);
/* One I64 or I32. */
yoke_status yoke_safetensors_integer(const yoke_safetensors *file, const yoke_file_tensor *tensor,
                                     int64_t *value);

/* Sorts the tensors (the caller fills in name, dtype, ndim and shape) into the reference writer's
 * order and assigns their offsets. */
yoke_status yoke_safetensors_arrange(yoke_file_tensor *tensors, int count);
/* The header of a file with these tensors, which are arranged, and with `notes` in __metadata__;
 * one of them may be the seal (digest.h). The caller frees it. ARGUMENT: two tensors or two notes
 * have one name, or one that the format needs itself. */
yoke_status yoke_safetensors_header(char **header, size_t *bytes, const yoke_file_tensor *tensors,
                                    int count, const yoke_file_note *notes, int note_count);
/* Begins a new file with that header. Then write the tensors' bytes in their order with
 * yoke_file_write, and finish with yoke_file_commit. */
yoke_status yoke_safetensors_create(yoke_file_writer *writer, const yoke_file_target *target,
                                    const yoke_file_tensor *tensors, int count,
                                    const yoke_file_note *notes, int note_count);

#endif
