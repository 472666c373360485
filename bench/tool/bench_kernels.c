/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel calls of a step: like ones become one row of the table, the longest first. */
#include "bench/tool/bench_kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/floor/floor.h"
#include "cli/cli.h"

enum { FARTHEST = 3 }; /* operations that the summary names */

typedef struct kernel_table {
    const bench_engine *engine;
    char device[128];
    bench_rates rates;
    bench_kernel_call *calls; /* in the order of a step */
    int count;
} kernel_table;

/* The least time that the rates allow. */
static double floor_ms(const kernel_table *table, const bench_kernel_call *call) {
    return 1e3 * fmax(call->bytes / table->rates.bytes_per_s,
                      call->operations / table->rates.operations_per_s);
}

/* The part of the roofline that a call reaches, in per cent. */
static double percent_of(double least_ms, double milliseconds) {
    return milliseconds > 0 ? 100 * least_ms / milliseconds : NAN;
}

static const char *algorithm_of(const bench_kernel_call *call) {
    return call->algorithm != NULL ? call->algorithm : "-";
}

static bool is_convolution(const bench_kernel_call *call) {
    return strcmp(call->operation, "conv2d") == 0;
}

static bool is_im2col(const bench_kernel_call *call) {
    return is_convolution(call) && strncmp(algorithm_of(call), "im2col", 6) == 0;
}

/* No library has an algorithm for it; elsewhere im2col was the fastest. */
static bool is_unserved(const bench_kernel_call *call) {
    return is_convolution(call) && strncmp(algorithm_of(call), "im2col, no other", 16) == 0;
}

static int count_calls(const kernel_table *table, bool (*has)(const bench_kernel_call *)) {
    int count = 0;
    for (int i = 0; i < table->count; i++)
        count += has(&table->calls[i]);
    return count;
}

/* Measuring. */

static yoke_status describe(kernel_table *table) {
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_status status = yoke_devices_describe(table->engine->devices, 0, &info);
    if (status != YOKE_OK) return status;
    snprintf(table->device, sizeof table->device, "%s", info.description);
    return bench_measure_rates(table->engine->parallel, &table->rates);
}

static yoke_status measure(kernel_table *table, int repeat) {
    yoke_data_parallel *parallel = table->engine->parallel;
    int count = 0;
    yoke_status status = bench_kernel_calls(parallel, 1, NULL, 0, &count);
    if (status == YOKE_OK) status = describe(table);
    if (status != YOKE_OK) return status;
    table->calls = calloc((size_t)count, sizeof *table->calls);
    if (table->calls == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d kernel calls", count);
    return bench_kernel_calls(parallel, repeat, table->calls, count, &table->count);
}

/* The table. */

typedef struct kernel_row {
    const bench_kernel_call *call; /* the first of its kind */
    int count;
    double milliseconds, least_ms, bytes, operations; /* of all together */
} kernel_row;

static bool alike(const bench_kernel_call *a, const bench_kernel_call *b) {
    return strcmp(a->operation, b->operation) == 0 && strcmp(a->direction, b->direction) == 0 &&
           strcmp(a->shape, b->shape) == 0 && strcmp(algorithm_of(a), algorithm_of(b)) == 0 &&
           a->bytes == b->bytes;
}

static void add_call(const kernel_table *table, kernel_row *row, const bench_kernel_call *call) {
    if (row->count++ == 0) row->call = call;
    row->milliseconds += call->milliseconds;
    row->least_ms += floor_ms(table, call);
    row->bytes += call->bytes;
    row->operations += call->operations;
}

static bool same_operation(const bench_kernel_call *a, const bench_kernel_call *b) {
    return strcmp(a->operation, b->operation) == 0;
}

static int join_calls(const kernel_table *table, kernel_row *rows,
                      bool (*joins)(const bench_kernel_call *, const bench_kernel_call *)) {
    int count = 0;
    for (int i = 0; i < table->count; i++) {
        int at = 0;
        while (at < count && !joins(rows[at].call, &table->calls[i]))
            at++;
        add_call(table, &rows[at], &table->calls[i]);
        if (at == count) count++;
    }
    return count;
}

static int by_time(const void *a, const void *b) {
    double x = ((const kernel_row *)a)->milliseconds, y = ((const kernel_row *)b)->milliseconds;
    return (x < y) - (x > y);
}

/* What the calls take more than the roofline allows. A cache may make them faster than that. */
static double above_ms(const kernel_row *row) {
    return fmax(0, row->milliseconds - row->least_ms);
}

static int by_distance(const void *a, const void *b) {
    double x = above_ms(a), y = above_ms(b);
    return (x < y) - (x > y);
}

static void print_rows(const kernel_row *rows, int count, double whole_ms) {
    printf("%9s %6s %5s %7s %9s %9s %9s  %-13s %-16s %-22s %s\n", "ms", "share", "calls", "roof",
           "ms above", "GB/s", "TFLOP/s", "operation", "direction", "algorithm", "shape of a row");
    for (int i = 0; i < count; i++) {
        const kernel_row *row = &rows[i];
        const bench_kernel_call *call = row->call;
        double seconds = row->milliseconds * 1e-3;
        printf("%9.4f %4.0f %% %5d %5.0f %% %9.4f %9.1f %9.3f  %-13s %-16s %-22s %s\n",
               row->milliseconds, percent_of(row->milliseconds, whole_ms), row->count,
               percent_of(row->least_ms, row->milliseconds), above_ms(row),
               row->bytes / seconds * 1e-9, row->operations / seconds * 1e-12, call->operation,
               call->direction, algorithm_of(call), call->shape);
    }
}

/* The operations, all shapes and directions of each together, that are farthest from the roofline.
 */
static void print_distances(kernel_row *operations, int count, double whole_ms) {
    qsort(operations, (size_t)count, sizeof *operations, by_distance);
    printf("farthest above the roofline:");
    for (int i = 0; i < count && i < FARTHEST; i++)
        printf("%s %s %.3f of %.3f ms (%.0f %% of all)", i > 0 ? "," : "",
               operations[i].call->operation, above_ms(&operations[i]), operations[i].milliseconds,
               percent_of(operations[i].milliseconds, whole_ms));
    printf("\n");
}

static void print_im2col(const kernel_table *table) {
    int slow = count_calls(table, is_im2col);
    printf("im2col computes %d of %d convolution passes, %d for want of another algorithm", slow,
           count_calls(table, is_convolution), count_calls(table, is_unserved));
    for (int i = 0; i < table->count; i++)
        if (is_im2col(&table->calls[i]))
            printf("%s%s %s", slow-- > 0 ? "\n  " : "", table->calls[i].layer,
                   table->calls[i].direction);
    printf("\n");
}

static kernel_row sum_calls(const kernel_table *table) {
    kernel_row all = {0};
    for (int i = 0; i < table->count; i++)
        add_call(table, &all, &table->calls[i]);
    return all;
}

static yoke_status print_table(const kernel_table *table) {
    const bench_setup *setup = &table->engine->setup;
    kernel_row *rows = calloc((size_t)table->count, sizeof *rows), all = sum_calls(table);
    if (rows == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d kernel calls", table->count);
    int count = join_calls(table, rows, alike);
    qsort(rows, (size_t)count, sizeof *rows, by_time);
    print_rows(rows, count, all.milliseconds);
    printf("%s, %d rows, %s on %s: %d calls, each alone %.3f ms, at the roofline %.3f ms "
           "(%.0f %%)\n",
           setup->model, setup->rows, yoke_precision_names[setup->precision], table->device,
           table->count, all.milliseconds, all.least_ms,
           percent_of(all.least_ms, all.milliseconds));
    memset(rows, 0, (size_t)table->count * sizeof *rows);
    print_distances(rows, join_calls(table, rows, same_operation), all.milliseconds);
    free(rows);
    printf("roofline, measured now: %.1f GB/s of a copy, %.3f TFLOP/s of a matrix product; above "
           "100 %% a cache holds the operands\n",
           table->rates.bytes_per_s * 1e-9, table->rates.operations_per_s * 1e-12);
    print_im2col(table);
    return YOKE_OK;
}

/* JSON. */

static void json_call(yoke_json *json, const kernel_table *table, const bench_kernel_call *call) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "layer", call->layer);
    yoke_json_text(json, "operation", call->operation);
    yoke_json_text(json, "direction", call->direction);
    if (call->algorithm != NULL) yoke_json_text(json, "algorithm", call->algorithm);
    yoke_json_text(json, "shape", call->shape);
    yoke_json_real(json, "ms", call->milliseconds);
    yoke_json_real(json, "bytes", call->bytes);
    yoke_json_real(json, "operations", call->operations);
    yoke_json_real(json, "roofline_ms", floor_ms(table, call));
    yoke_json_close(json, '}');
}

static yoke_status json_operations(yoke_json *json, const kernel_table *table) {
    kernel_row *rows = calloc((size_t)table->count, sizeof *rows), all = sum_calls(table);
    if (rows == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d kernel calls", table->count);
    int count = join_calls(table, rows, same_operation);
    qsort(rows, (size_t)count, sizeof *rows, by_distance);
    yoke_json_open(json, "operations", '[');
    for (int i = 0; i < count; i++) {
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "operation", rows[i].call->operation);
        yoke_json_integer(json, "calls", rows[i].count);
        yoke_json_real(json, "ms", rows[i].milliseconds);
        yoke_json_real(json, "share", rows[i].milliseconds / all.milliseconds);
        yoke_json_real(json, "roofline_ms", rows[i].least_ms);
        yoke_json_real(json, "above_ms", above_ms(&rows[i]));
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
    free(rows);
    return YOKE_OK;
}

static yoke_status print_json(const kernel_table *table) {
    const bench_setup *setup = &table->engine->setup;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", setup->model);
    yoke_json_integer(&json, "rows", setup->rows);
    yoke_json_text(&json, "precision", yoke_precision_names[setup->precision]);
    yoke_json_text(&json, "device", table->device);
    yoke_json_real(&json, "bytes_per_s", table->rates.bytes_per_s);
    yoke_json_real(&json, "operations_per_s", table->rates.operations_per_s);
    yoke_json_integer(&json, "convolution_passes", count_calls(table, is_convolution));
    yoke_json_integer(&json, "im2col_passes", count_calls(table, is_im2col));
    yoke_json_integer(&json, "unserved_passes", count_calls(table, is_unserved));
    yoke_json_open(&json, "calls", '[');
    for (int i = 0; i < table->count; i++)
        json_call(&json, table, &table->calls[i]);
    yoke_json_close(&json, ']');
    yoke_status status = json_operations(&json, table);
    yoke_json_close(&json, '}');
    if (status == YOKE_OK) return cli_print_json(&json, stdout);
    yoke_json_end(&json);
    return status;
}

yoke_status bench_kernels(const bench_setup *setup, int repeat, bool json, int *unserved) {
    bench_engine *engine = NULL;
    yoke_status status = bench_engine_create(&engine, setup);
    if (status == YOKE_OK && engine->setup.devices != 1)
        status = cli_refuse(YOKE_ERROR_ARGUMENT,
                            "--device %s: %d devices, --kernels measures one; name one, as in "
                            "cuda:0",
                            setup->list, engine->setup.devices);
    kernel_table table = {.engine = engine};
    if (status == YOKE_OK) status = measure(&table, repeat);
    if (status == YOKE_OK) status = json ? print_json(&table) : print_table(&table);
    *unserved = count_calls(&table, is_unserved);
    free(table.calls);
    bench_engine_destroy(engine);
    return status;
}
