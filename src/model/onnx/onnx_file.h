/* SPDX-License-Identifier: Apache-2.0 */
/* A file of ONNX in memory, and the elements of its tensors, which may lie in files beside it; for
 * this folder's files only. */
#ifndef MODEL_ONNX_FILE_H
#define MODEL_ONNX_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "model/onnx/onnx.pb-c.h"

/* Types of elements, by their numbers in files. */
enum {
    YOKE_ONNX_FLOAT = 1,
    YOKE_ONNX_UINT8 = 2,
    YOKE_ONNX_INT8 = 3,
    YOKE_ONNX_INT16 = 5,
    YOKE_ONNX_INT32 = 6,
    YOKE_ONNX_INT64 = 7,
    YOKE_ONNX_BOOL = 9,
    YOKE_ONNX_FLOAT16 = 10,
    YOKE_ONNX_DOUBLE = 11,
    YOKE_ONNX_BFLOAT16 = 16
};

typedef struct yoke_onnx_file {
    const char *path; /* the caller's */
    bool in_memory;   /* no folder has files beside it */
    Yoke__Onnx__Model *model;
    size_t taken, limit; /* bytes of what the parser has made, and may make */
    bool full;           /* it has asked for more */
    size_t missing;      /* bytes that it did not get for want of memory; 0: none */
} yoke_onnx_file;

/* Reads and parses the file. MISSING, IO; DATA: it is none of ONNX, or has strings that are no
 * text. */
yoke_status yoke_onnx_file_open(yoke_onnx_file *file, const yoke_file_source *from);
void yoke_onnx_file_close(yoke_onnx_file *file);

/* Whether elements of this type are read, and are whole numbers. */
bool yoke_onnx_type_known(int type);
bool yoke_onnx_type_whole(int type);
/* Elements of a tensor, checked against what the file has of them. DATA: sizes below 0, or a
 * product that overflows. */
yoke_status yoke_onnx_tensor_count(const Yoke__Onnx__Tensor *tensor, size_t *count);
/* Its elements, [count], as either. MISSING, IO and DATA name the file. */
yoke_status yoke_onnx_tensor_floats(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                    size_t count, float *values);
yoke_status yoke_onnx_tensor_doubles(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                     size_t count, double *values);
/* Whether all elements are there, without reading those of other files. */
yoke_status yoke_onnx_tensor_check(const yoke_onnx_file *file, const Yoke__Onnx__Tensor *tensor,
                                   size_t count);

#endif
