/* SPDX-License-Identifier: Apache-2.0 */
/* yoke checkpoint diff: tensor by tensor, in the order of the first file. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/checkpoint_verb.h"

/* How two tensors of one name differ. */
typedef struct difference {
    const char *name, *what; /* what: NULL where both hold floats of one shape */
    size_t elements;         /* that differ */
    double absolute;         /* the largest, */
    uint64_t ulps;           /* likewise */
} difference;

typedef struct report {
    bool as_json;
    yoke_json json;
    int tensors, different;
} report;

/* The place of a float among all floats in their order; -0 and 0 have one place. */
static int64_t place_of(float value) {
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits >= 0 ? bits : -(int64_t)(bits & INT32_MAX);
}

static void compare_floats(difference *found, const float *left, const float *right, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&left[i], &right[i], sizeof left[i]) == 0) continue;
        int64_t apart = place_of(left[i]) - place_of(right[i]);
        uint64_t ulps = (uint64_t)(apart < 0 ? -apart : apart);
        double absolute = fabs((double)left[i] - (double)right[i]);
        found->elements++;
        if (ulps > found->ulps) found->ulps = ulps;
        if (absolute > found->absolute) found->absolute = absolute;
    }
}

/* Two tensors of one type and shape. */
typedef struct pair {
    const yoke_checkpoint *left, *right;
    int left_index, right_index;
    yoke_checkpoint_tensor_info info; /* of the first */
    bool same;                        /* in all bytes */
    size_t different;                 /* elements whose bytes differ; 0 where they share bytes */
} pair;

static void compare_bytes(pair *of, const char *left, const char *right) {
    size_t width = of->info.count > 0 ? of->info.bytes / of->info.count : 0;
    of->same = memcmp(left, right, of->info.bytes) == 0;
    of->different = 0;
    for (size_t i = 0; width > 0 && !of->same && i < of->info.count; i++)
        of->different += memcmp(left + width * i, right + width * i, width) != 0;
}

/* Room for two copies of a tensor; the caller frees it. */
static yoke_status allocate(void **both, size_t bytes) {
    *both = malloc(2 * bytes + 1);
    return *both != NULL
               ? YOKE_OK
               : cli_refuse(YOKE_ERROR_MEMORY, "no memory for two tensors of %zu bytes", bytes);
}

static yoke_status read_bytes(pair *of) {
    char *both;
    size_t bytes = of->info.bytes;
    yoke_status status = allocate((void **)&both, bytes);
    if (status == YOKE_OK) status = yoke_checkpoint_bytes(of->left, of->left_index, both, bytes);
    if (status == YOKE_OK)
        status = yoke_checkpoint_bytes(of->right, of->right_index, both + bytes, bytes);
    if (status == YOKE_OK) compare_bytes(of, both, both + bytes);
    free(both);
    return status;
}

/* Types whose values float32 holds. */
static bool has_floats(const char *dtype) {
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "F16") == 0 || strcmp(dtype, "BF16") == 0;
}

static yoke_status compare_values(difference *found, const pair *of) {
    float *values;
    size_t count = of->info.count;
    yoke_status status = allocate((void **)&values, count * sizeof *values);
    if (status == YOKE_OK) status = yoke_checkpoint_values(of->left, of->left_index, values, count);
    if (status == YOKE_OK)
        status = yoke_checkpoint_values(of->right, of->right_index, values + count, count);
    if (status == YOKE_OK) compare_floats(found, values, values + count, count);
    free(values);
    return status;
}

/* -1: there is no tensor of that name. */
static int find(const yoke_checkpoint *checkpoint, const char *name,
                yoke_checkpoint_tensor_info *info) {
    info->struct_size = sizeof *info;
    for (int i = 0; yoke_checkpoint_tensor(checkpoint, i, info) == YOKE_OK; i++)
        if (strcmp(info->name, name) == 0) return i;
    return -1;
}

static void print_difference(report *out, const difference *found) {
    out->different++;
    if (!out->as_json) {
        cli_print_text(stdout, found->name, 54);
        if (found->what != NULL)
            printf("%s\n", found->what);
        else
            printf("%10zu  %12.6g  %12" PRIu64 "\n", found->elements, found->absolute, found->ulps);
        return;
    }
    yoke_json_open(&out->json, NULL, '{');
    yoke_json_text(&out->json, "name", found->name);
    if (found->what != NULL) {
        yoke_json_text(&out->json, "what", found->what);
    } else {
        yoke_json_integer(&out->json, "elements", (int64_t)found->elements);
        yoke_json_real(&out->json, "max_absolute", found->absolute);
        yoke_json_integer(&out->json, "max_ulps", (int64_t)found->ulps);
    }
    yoke_json_close(&out->json, '}');
}

static yoke_status compare_tensor(report *out, const yoke_checkpoint *left, int index,
                                  const yoke_checkpoint *right) {
    yoke_checkpoint_tensor_info one = {.struct_size = sizeof one}, two;
    char text[320], shapes[2][128];
    yoke_status status = yoke_checkpoint_tensor(left, index, &one);
    if (status != YOKE_OK) return status;
    int other = find(right, one.name, &two);
    difference found = {.name = one.name, .what = text};
    out->tensors++;
    bool same_shape = other >= 0 && one.ndim == two.ndim &&
                      memcmp(one.shape, two.shape, sizeof one.shape) == 0 &&
                      strcmp(one.dtype, two.dtype) == 0;
    pair of = {left, right, index, other, one, false, 0};
    if (same_shape) status = read_bytes(&of);
    if (status != YOKE_OK || of.same) return status;
    if (other < 0)
        snprintf(text, sizeof text, "only in the first");
    else if (!same_shape)
        snprintf(text, sizeof text, "%s %s, and %s %s", one.dtype,
                 checkpoint_shape(&one, shapes[0]), two.dtype, checkpoint_shape(&two, shapes[1]));
    else if (one.bytes < one.count)
        snprintf(text, sizeof text, "%s values differ", one.dtype);
    else if (!has_floats(one.dtype))
        snprintf(text, sizeof text, "%zu of %zu values of %s differ", of.different, one.count,
                 one.dtype);
    else
        found.what = NULL;
    if (found.what == NULL) status = compare_values(&found, &of);
    if (status == YOKE_OK) print_difference(out, &found);
    return status;
}

static yoke_status compare_tensors(report *out, const yoke_checkpoint *left,
                                   const yoke_checkpoint *right) {
    yoke_checkpoint_tensor_info info = {.struct_size = sizeof info}, other;
    yoke_status status = YOKE_OK;
    for (int i = 0; status == YOKE_OK && yoke_checkpoint_tensor(left, i, &info) == YOKE_OK; i++)
        status = compare_tensor(out, left, i, right);
    for (int i = 0; status == YOKE_OK && yoke_checkpoint_tensor(right, i, &info) == YOKE_OK; i++) {
        if (find(left, info.name, &other) >= 0) continue;
        print_difference(out, &(difference){.name = info.name, .what = "only in the second"});
        out->tensors++;
    }
    return status;
}

/* A fact of one file, or of both. first, second: NULL where the file does not state it. */
static void print_fact(report *out, const char *key, const char *first, const char *second) {
    if (out->as_json) {
        yoke_json_open(&out->json, NULL, '{');
        yoke_json_text(&out->json, "name", key);
        yoke_json_text(&out->json, "first", first);
        yoke_json_text(&out->json, "second", second);
        yoke_json_close(&out->json, '}');
        return;
    }
    cli_print_text(stdout, key, 26);
    cli_print_text(stdout, first != NULL ? first : second, 0);
    if (first == NULL || second == NULL)
        fputs(second == NULL ? ", only in the first" : ", only in the second", stdout);
    if (first != NULL && second != NULL) {
        fputs(", and ", stdout);
        cli_print_text(stdout, second, 0);
    }
    putchar('\n');
}

/* Facts that differ, beside the tensors: the step, or an option. */
static void compare_facts(report *out, const yoke_checkpoint *left, const yoke_checkpoint *right) {
    const char *key, *value;
    for (int i = 0; yoke_checkpoint_fact(left, i, &key, &value); i++) {
        const char *other = checkpoint_fact(right, key);
        if (checkpoint_is_told(key) && (other == NULL || strcmp(other, value) != 0))
            print_fact(out, key, value, other);
    }
    for (int i = 0; yoke_checkpoint_fact(right, i, &key, &value); i++)
        if (checkpoint_is_told(key) && checkpoint_fact(left, key) == NULL)
            print_fact(out, key, NULL, value);
}

static yoke_status print_report(report *out, const yoke_checkpoint *left,
                                const yoke_checkpoint *right) {
    yoke_json_open(&out->json, NULL, '{');
    yoke_json_open(&out->json, "facts", '[');
    compare_facts(out, left, right);
    yoke_json_close(&out->json, ']');
    yoke_json_open(&out->json, "different", '[');
    if (!out->as_json)
        printf("%-52s  %10s  %12s  %12s\n", "tensor", "elements", "max |a - b|", "max ULPs");
    yoke_status status = compare_tensors(out, left, right);
    yoke_json_close(&out->json, ']');
    yoke_json_integer(&out->json, "tensors", out->tensors);
    yoke_json_close(&out->json, '}');
    if (status != YOKE_OK) return status;
    if (out->as_json) return cli_print_json(&out->json, stdout);
    printf("%d of %d tensors differ\n", out->different, out->tensors);
    return YOKE_OK;
}

int checkpoint_diff(const char *left_path, const char *right_path, bool as_json) {
    yoke_checkpoint *left = NULL, *right = NULL;
    report out = {.as_json = as_json};
    yoke_json_begin(&out.json);
    yoke_status status = yoke_checkpoint_open(&left, left_path);
    if (status == YOKE_OK) status = yoke_checkpoint_open(&right, right_path);
    if (status == YOKE_OK) status = print_report(&out, left, right);
    yoke_json_end(&out.json);
    yoke_checkpoint_close(right);
    yoke_checkpoint_close(left);
    if (status != YOKE_OK) return cli_fail(status);
    return out.different > 0 ? 1 : 0;
}
