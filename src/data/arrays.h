/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays as NumPy saves them, and the words of a SPEC that names files. For this room only. */
#ifndef DATA_ARRAYS_H
#define DATA_ARRAYS_H

#include "data/data.h"

/* An array inside a file's bytes. */
#define YOKE_NPY_DIMENSIONS 8
typedef struct yoke_npy {
    const char *name; /* of the file; begins the text of every error */
    char kind;        /* 'u', 'i', 'b' or 'f', as in "<f4" */
    int item_bytes;
    int dimensions;
    size_t shape[YOKE_NPY_DIMENSIONS], count; /* count: their product */
    const uint8_t *values;                    /* little endian, the last index fastest */
} yoke_npy;

/* Reads the header of an .npy file of version 1, 2 or 3. DATA: it is none, ends early, or holds
 * what Yoke does not read; the text says which call of NumPy converts it. */
yoke_status yoke_npy_parse(yoke_npy *array, const char *name, const uint8_t *file, size_t bytes);
/* Value i as a number. */
double yoke_npy_value(const yoke_npy *array, size_t i);
/* Value i of integers or booleans; a "<u8" above INT64_MAX becomes INT64_MAX. */
int64_t yoke_npy_integer(const yoke_npy *array, size_t i);
/* "(3, 4)". */
#define YOKE_NPY_TEXT 192
const char *yoke_npy_shape_text(const yoke_npy *array, char text[YOKE_NPY_TEXT]);

/* A file inside an .npz, which is a ZIP archive. */
typedef struct yoke_npz_member {
    const uint8_t *data; /* NULL: there is no such file */
    size_t bytes;
    uint8_t *inflated; /* NULL, or what `data` points to, which the caller frees */
} yoke_npz_member;

/* *has: whether NAME.npy is in the archive's directory. DATA: there is no directory. */
yoke_status yoke_npz_has(const char *path, const yoke_file_mapping *zip, const char *name,
                         bool *has);
/* Finds NAME.npy in the archive and compares its checksum. A stored file is not copied. DATA: the
 * archive is damaged, or the file is encrypted or packed in another way than by deflate. */
yoke_status yoke_npz_find(yoke_npz_member *member, const char *path, const yoke_file_mapping *zip,
                          const char *name);
/* Unpacks the first bytes of NAME.npy, with zeros behind its end. *bytes: the size of the whole
 * file; 0: it is not packed, or not there. DATA as above. */
#define YOKE_NPZ_HEAD (65536 + 16) /* the longest header of an .npy file */
yoke_status yoke_npz_look(uint8_t head[YOKE_NPZ_HEAD], size_t *bytes, const char *path,
                          const yoke_file_mapping *zip, const char *name);
/* "x, y": the files of the archive without ".npy", as many as fit. */
void yoke_npz_list(const yoke_file_mapping *zip, char *text, size_t size);

/* A word of "FILE,FILE,name=value". name NULL: the word is `value` alone. */
typedef struct yoke_spec_word {
    const char *name;
    char *value;
} yoke_spec_word;
/* Cuts the next word off; false at the end. A word is name=value if it has only lower case letters
 * before "=": another name must be written with its folder, ./a=b.npy. */
bool yoke_spec_next(char **rest, yoke_spec_word *word);
/* ARGUMENT: FILE,name=value has a setting twice; `ignore` and `input` may come more often. */
yoke_status yoke_spec_check_repeats(const char *format, const char *text);
/* ARGUMENT: `word` is no setting of `format`. names: [count]; help: how to write them. */
yoke_status yoke_spec_unknown(const char *format, const yoke_spec_word *word,
                              const char *const *names, size_t count, const char *help);
/* validation=X. */
yoke_status yoke_spec_validation(const char *format, const yoke_spec_word *word, double *part);

#endif
