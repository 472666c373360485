/* SPDX-License-Identifier: Apache-2.0 */
/* The covariance of patches is the mean of their products, about 0, the mean of normalised rows:
 * get_whitening_parameters of airbench94, after Page 2018. */
#include "train/whiten.h"

#include <math.h>
#include <stdlib.h>

#include "data/data.h"
#include "parallel/parallel.h"
#include "train/eigenvectors.h"

#define ROWS 5000
#define BATCH 50
#define PRODUCTS 4e9  /* of two values, at most: fewer rows where images are large */
#define SMALLEST 5e-4 /* added to each eigenvalue */

typedef struct covariance {
    yoke_stem stem;
    yoke_shape shape;
    size_t values;          /* of a patch */
    double patches;         /* that were added */
    double *sums, *vectors; /* [values, values] */
    float *patch;           /* [values] */
} covariance;

static yoke_status open_covariance(covariance *c, const yoke_run *run) {
    c->shape = run->training.info.shape;
    TRY(yoke_model_stem(run->model, run->options.whiten, &c->stem));
    const yoke_stem *stem = &c->stem;
    c->values = (size_t)stem->channels * (size_t)stem->height * (size_t)stem->width;
    if (stem->filters % 2 != 0 || (size_t)stem->filters > 2 * c->values)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "whiten %s: %d filters; there must be an even number of them, at most %zu for "
                    "patches of %zu values",
                    run->options.whiten, stem->filters, 2 * c->values, c->values);
    if (run->training.info.rows == 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "whiten %s: a row stream has no rows to see beforehand",
                    run->options.whiten);
    size_t squares = c->values * c->values;
    c->sums = yoke_calloc(squares, sizeof *c->sums);
    c->vectors = yoke_calloc(squares, sizeof *c->vectors);
    c->patch = yoke_calloc(c->values, sizeof *c->patch);
    if (c->sums == NULL || c->vectors == NULL || c->patch == NULL)
        return FAIL_MEMORY(2 * squares * sizeof *c->sums, "the covariance of patches");
    return YOKE_OK;
}

static void close_covariance(covariance *c) {
    yoke_free(c->sums);
    yoke_free(c->vectors);
    yoke_free(c->patch);
}

static size_t patches_of_row(const covariance *c) {
    return (size_t)(c->shape.height - c->stem.height + 1) *
           (size_t)(c->shape.width - c->stem.width + 1);
}

/* In the order of a filter: channels, lines, columns. */
static void read_patch(const covariance *c, const float *row, int top, int left) {
    const yoke_stem *stem = &c->stem;
    float *to = c->patch;
    for (int channel = 0; channel < stem->channels; channel++)
        for (int y = top; y < top + stem->height; y++)
            for (int x = left; x < left + stem->width; x++)
                *to++ = row[(size_t)(channel * c->shape.height + y) * (size_t)c->shape.width +
                            (size_t)x];
}

static void add_row(covariance *c, const float *row) {
    for (int top = 0; top + c->stem.height <= c->shape.height; top++)
        for (int left = 0; left + c->stem.width <= c->shape.width; left++) {
            read_patch(c, row, top, left);
            for (size_t i = 0; i < c->values; i++)
                for (size_t j = 0; j <= i; j++)
                    c->sums[i * c->values + j] += (double)c->patch[i] * (double)c->patch[j];
        }
    c->patches += (double)patches_of_row(c);
}

static size_t rows_to_see(const covariance *c, size_t rows) {
    double each = (double)patches_of_row(c) * (double)(c->values * (c->values + 1) / 2);
    size_t most = each * ROWS <= PRODUCTS ? ROWS : (size_t)(PRODUCTS / each) + 1;
    return rows < most ? rows : most;
}

static yoke_status add_rows(covariance *c, yoke_loader *loader, size_t rows) {
    size_t values = (size_t)c->shape.channels * (size_t)c->shape.height * (size_t)c->shape.width;
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_begin(loader, 0));
    for (size_t seen = 0; seen < rows;) {
        TRY(yoke_loader_next(loader, &batch, NULL));
        if (batch.rows == 0) return YOKE_OK;
        for (int i = 0; i < batch.rows && seen < rows; i++, seen++)
            add_row(c, batch.inputs + (size_t)i * values);
    }
    return YOKE_OK;
}

/* Rows in a random order: those of a folder lie there class by class. */
static yoke_status see_rows(covariance *c, const yoke_run *run) {
    size_t rows = rows_to_see(c, run->training.info.rows);
    yoke_loader *loader = NULL;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    options.batch = rows < BATCH ? (int)rows : BATCH;
    options.shuffle = true;
    options.seed = run->options.seed;
    TRY(yoke_loader_create(&loader, run->training.rows, &options));
    yoke_status status = add_rows(c, loader, rows);
    yoke_loader_destroy(loader);
    return status;
}

static void find_vectors(covariance *c) {
    for (size_t i = 0; i < c->values; i++)
        for (size_t j = 0; j <= i; j++) {
            double mean = c->sums[i * c->values + j] / c->patches;
            c->sums[i * c->values + j] = c->sums[j * c->values + i] = mean;
        }
    yoke_eigenvectors(c->sums, c->values, c->vectors);
}

/* Half of the filters, and their negatives. */
static void write_filters(const covariance *c, float *filters) {
    size_t half = (size_t)c->stem.filters / 2 * c->values;
    for (size_t i = 0; i < half; i++) {
        double value = c->sums[i / c->values * (c->values + 1)];
        filters[i] = (float)(c->vectors[i] / sqrt(fmax(value, 0) + SMALLEST));
        filters[half + i] = -filters[i];
    }
}

static yoke_status give_filters(covariance *c, const yoke_run *run) {
    size_t count = (size_t)c->stem.filters * c->values;
    float *filters = yoke_malloc(count * sizeof *filters);
    if (filters == NULL) return FAIL_MEMORY(count * sizeof *filters, "whitening filters");
    write_filters(c, filters);
    yoke_status status = yoke_data_parallel_write(run->parallel, c->stem.weight, filters, count);
    yoke_free(filters);
    TRY(status);
    return yoke_data_parallel_broadcast(run->parallel);
}

yoke_status yoke_whiten(yoke_run *run) {
    covariance c = {.sums = NULL};
    yoke_status status = open_covariance(&c, run);
    if (status == YOKE_OK) status = see_rows(&c, run);
    if (status == YOKE_OK) {
        find_vectors(&c);
        status = give_filters(&c, run);
    }
    close_covariance(&c);
    return status;
}
