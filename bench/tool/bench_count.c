/* SPDX-License-Identifier: Apache-2.0 */
/* Joins the launches of one step, as the simulator counted them, with the least that each operation
 * needs. Launches of one operation and direction become one row. */
#include "bench/tool/bench_count.h"

#include "cli/cli.h"

#ifndef YOKE_SIMCOUNT

yoke_status bench_count(const bench_setup *setup, bool json) {
    (void)setup, (void)json;
    return cli_refuse(YOKE_ERROR_MISSING,
                      "--count: this build has no simulated GPUs that count; build them with "
                      "scripts/build.sh simcount yoke-tool and call build/simcount/yoke");
}

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bench/floor/floor.h"
#include "bench/tool/bench_gpu_model.h"
#include "simcuda/control.h"
#include "simcuda/counted.h"

#define WARM_STEPS 3 /* until every recording is made */
#define NAMED 24     /* launches that the second table names */

typedef struct count_row {
    const char *operation, *direction, *what; /* what NULL: all of the operation's */
    int launches;
    double requested, unique, memory, operations, ms, slowest_tail;
    double least_bytes, least_operations, floor_ms;
} count_row;

typedef struct count_table {
    bench_engine *engine;
    const simcuda_counted *counted;
    int counted_count;
    bench_kernel_call *least;
    int least_count;
    count_row *rows, *named;
    int row_count, named_count;
    double transferred;
    int transfers;
    uint64_t works; /* kernels, calls and copies, by the simulator's own count */
} count_table;

static bool is_convolution(const char *operation) {
    return strstr(operation, "conv") != NULL;
}

static bench_arithmetic of_precision(yoke_precision precision) {
    static const bench_arithmetic of[] = {[YOKE_FLOAT32] = BENCH_FLOAT32_CORES,
                                          [YOKE_BFLOAT16] = BENCH_BFLOAT16,
                                          [YOKE_FLOAT16] = BENCH_BFLOAT16,
                                          [YOKE_TF32] = BENCH_TF32};
    return of[precision];
}

static bench_arithmetic of_counted(const simcuda_counted *one) {
    static const bench_arithmetic of[] = {[SIMCUDA_FLOAT32] = BENCH_FLOAT32_CORES,
                                          [SIMCUDA_TF32] = BENCH_TF32,
                                          [SIMCUDA_BFLOAT16] = BENCH_BFLOAT16};
    if (one->kind == SIMCUDA_LIBRARY) return of[one->arithmetic];
    return strstr(one->what, "tensor_") != NULL ? BENCH_OWN_TENSOR : BENCH_OWN_CORES;
}

/* Rows. */

static bool equal(const char *a, const char *b) {
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static count_row *find_row(count_row *rows, int *count, const char *operation,
                           const char *direction, const char *what) {
    for (int i = 0; i < *count; i++)
        if (strcmp(rows[i].operation, operation) == 0 &&
            strcmp(rows[i].direction, direction) == 0 && equal(rows[i].what, what))
            return &rows[i];
    rows[*count] = (count_row){.operation = operation, .direction = direction, .what = what};
    return &rows[(*count)++];
}

/* The parts of backward are one row, as the step queues them together. */
static const char *direction_of(const bench_kernel_call *call) {
    return strncmp(call->direction, "backward", 8) == 0 ? "backward" : call->direction;
}

static void add_least(count_table *table, const bench_kernel_call *call) {
    count_row *row =
        find_row(table->rows, &table->row_count, call->operation, direction_of(call), NULL);
    row->least_bytes += call->bytes;
    row->least_operations += call->operations;
    row->floor_ms += bench_model_floor_ms(call->bytes, call->operations,
                                          of_precision(table->engine->setup.precision),
                                          is_convolution(call->operation));
}

/* A kernel's own arithmetic counts in attention alone: its operation's, shared out by what its
 * launches load. */
static double operations_of(const count_table *table, const simcuda_counted *one) {
    if (one->kind == SIMCUDA_LIBRARY) return one->operations;
    if (one->kind != SIMCUDA_KERNEL || strcmp(one->operation, "attention") != 0) return 0;
    double all = 0, own = one->requested_bytes + one->shared_bytes, least = 0;
    for (int i = 0; i < table->counted_count; i++) {
        const simcuda_counted *other = &table->counted[i];
        if (other->kind == SIMCUDA_LIBRARY && equal(other->operation, one->operation)) return 0;
        if (equal(other->operation, one->operation) && equal(other->direction, one->direction))
            all += other->requested_bytes + other->shared_bytes;
    }
    for (int i = 0; i < table->least_count; i++)
        if (equal(table->least[i].operation, one->operation) &&
            equal(direction_of(&table->least[i]), one->direction))
            least += table->least[i].operations;
    return all > 0 ? least * own / all : 0;
}

/* The list calls the loss's plans "loss", whatever they compute. */
static const char *name_of(const count_table *table, const simcuda_counted *one) {
    if (one->operation[0] == '\0') return "other";
    for (int i = 0; i < table->least_count; i++)
        if (equal(table->least[i].operation, one->operation)) return one->operation;
    return one->direction[0] != '\0' ? "loss" : one->operation;
}

static void add_counted(count_table *table, const simcuda_counted *one) {
    if (one->kind == SIMCUDA_TRANSFER) {
        table->transferred += one->unique_bytes;
        table->transfers++;
        return;
    }
    const char *operation = name_of(table, one);
    bench_work work = {.operation = operation,
                       .what = one->what,
                       .library = one->kind != SIMCUDA_KERNEL,
                       .convolution = is_convolution(one->what) || is_convolution(operation),
                       .blocks = one->blocks,
                       .threads = one->threads,
                       .memory_bytes = one->memory_bytes,
                       .l2_bytes = one->l2_bytes,
                       .l1_bytes = one->requested_bytes + one->shared_bytes,
                       .operations = operations_of(table, one),
                       .arithmetic = of_counted(one)};
    double ms = bench_model_ms(&work), tail = bench_model_tail(&work);
    count_row *rows[] = {
        find_row(table->rows, &table->row_count, operation, one->direction, NULL),
        find_row(table->named, &table->named_count, operation, one->direction, one->what)};
    for (int i = 0; i < 2; i++) {
        rows[i]->launches++;
        rows[i]->requested += one->requested_bytes;
        rows[i]->unique += one->unique_bytes;
        rows[i]->memory += one->memory_bytes;
        rows[i]->operations += work.operations;
        rows[i]->ms += ms;
        if (tail > rows[i]->slowest_tail) rows[i]->slowest_tail = tail;
    }
}

static int by_ms(const void *a, const void *b) {
    double x = ((const count_row *)a)->ms, y = ((const count_row *)b)->ms;
    return (x < y) - (x > y);
}

static count_row sum(const count_row *rows, int count) {
    count_row all = {.operation = "all", .direction = ""};
    for (int i = 0; i < count; i++) {
        all.launches += rows[i].launches;
        all.requested += rows[i].requested;
        all.unique += rows[i].unique;
        all.memory += rows[i].memory;
        all.operations += rows[i].operations;
        all.ms += rows[i].ms;
        all.least_bytes += rows[i].least_bytes;
        all.floor_ms += rows[i].floor_ms;
    }
    return all;
}

/* Counting. */

static yoke_status run(count_table *table) {
    double milliseconds;
    yoke_status status = bench_engine_steps(table->engine, WARM_STEPS, &milliseconds);
    /* The second of two steps finds in the cache what a step leaves there. */
    for (int i = 0; i < 2 && status == YOKE_OK; i++) {
        table->works = simcuda_works_so_far();
        simcuda_count_begin();
        status = bench_engine_steps(table->engine, 1, &milliseconds);
    }
    table->counted_count = simcuda_count_end(&table->counted);
    table->works = simcuda_works_so_far() - table->works;
    return status;
}

static yoke_status list_least(count_table *table) {
    int count = 0;
    yoke_status status = bench_kernel_list(table->engine->parallel, NULL, 0, &count);
    if (status != YOKE_OK) return status;
    size_t most = (size_t)(count + table->counted_count) + 1;
    table->least = calloc((size_t)count + 1, sizeof *table->least);
    table->rows = calloc(most, sizeof *table->rows);
    table->named = calloc(most, sizeof *table->named);
    if (!table->least || !table->rows || !table->named)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu rows", most);
    return bench_kernel_list(table->engine->parallel, table->least, count, &table->least_count);
}

static void join(count_table *table) {
    for (int i = 0; i < table->least_count; i++)
        add_least(table, &table->least[i]);
    for (int i = 0; i < table->counted_count; i++)
        add_counted(table, &table->counted[i]);
    qsort(table->rows, (size_t)table->row_count, sizeof *table->rows, by_ms);
    qsort(table->named, (size_t)table->named_count, sizeof *table->named, by_ms);
}

/* Printing. */

static void print_row(const count_row *row) {
    printf("%9.3f %9.3f %8d %9.3f %9.3f %9.3f %9.3f  %-14s %s\n", row->ms, row->floor_ms,
           row->launches, row->requested * 1e-9, row->memory * 1e-9, row->least_bytes * 1e-9,
           row->operations * 1e-12, row->operation, row->direction);
}

static void print_named(const count_row *row) {
    printf("%9.3f %5.2f %8d %9.3f %9.3f %9.3f  %s %s: %s\n", row->ms, row->slowest_tail,
           row->launches, row->requested * 1e-9, row->memory * 1e-9, row->operations * 1e-12,
           row->operation, row->direction, row->what);
}

static void print_table(const count_table *table) {
    const bench_setup *setup = &table->engine->setup;
    count_row all = sum(table->rows, table->row_count);
    printf("COUNTED on simulated GPUs, not timed; ms are those of a model of an H100\n");
    printf("%s, %d rows, %s: a training step has %d launches and moves %.2f GB of memory\n",
           setup->model, setup->rows, yoke_precision_names[setup->precision], all.launches,
           all.memory * 1e-9);
    printf("%9s %9s %8s %9s %9s %9s %9s  %s\n", "model ms", "floor ms", "launches", "GB asked",
           "GB memory", "GB least", "TFLOP", "operation");
    for (int i = 0; i < table->row_count; i++)
        print_row(&table->rows[i]);
    print_row(&all);
    printf("%9s %5s %8s %9s %9s %9s  %s\n", "model ms", "tail", "launches", "GB asked", "GB memory",
           "TFLOP", "kernel or call of a library");
    for (int i = 0; i < table->named_count && i < NAMED; i++)
        print_named(&table->named[i]);
    printf("asked: loads and stores of threads, of a library its operands once. memory: what "
           "misses 50 MB of second-level cache. least: operands once.\n"
           "tail: the most that the last wave of blocks stretches one of them.\n");
    printf("not in the sum: %d transfers of %.3f GB from and to the host\n", table->transfers,
           table->transferred * 1e-9);
    bench_model_print();
}

static void json_rows(yoke_json *json, const char *name, const count_row *rows, int count) {
    yoke_json_open(json, name, '[');
    for (int i = 0; i < count; i++) {
        const count_row *row = &rows[i];
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "operation", row->operation);
        yoke_json_text(json, "direction", row->direction);
        if (row->what != NULL) yoke_json_text(json, "what", row->what);
        yoke_json_integer(json, "launches", row->launches);
        yoke_json_real(json, "requested_bytes", row->requested);
        yoke_json_real(json, "unique_bytes", row->unique);
        yoke_json_real(json, "memory_bytes", row->memory);
        yoke_json_real(json, "operations", row->operations);
        yoke_json_real(json, "model_ms", row->ms);
        if (row->what == NULL) {
            yoke_json_real(json, "least_bytes", row->least_bytes);
            yoke_json_real(json, "least_operations", row->least_operations);
            yoke_json_real(json, "floor_ms", row->floor_ms);
        } else {
            yoke_json_real(json, "tail", row->slowest_tail);
        }
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static yoke_status print_json(const count_table *table) {
    const bench_setup *setup = &table->engine->setup;
    count_row all = sum(table->rows, table->row_count);
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "what", "counted on simulated GPUs, not timed");
    yoke_json_text(&json, "model", setup->model);
    yoke_json_integer(&json, "rows", setup->rows);
    yoke_json_text(&json, "precision", yoke_precision_names[setup->precision]);
    yoke_json_real(&json, "transferred_bytes", table->transferred);
    yoke_json_integer(&json, "transfers", table->transfers);
    yoke_json_integer(&json, "simulated_works", (int64_t)table->works);
    json_rows(&json, "total", &all, 1);
    json_rows(&json, "operations", table->rows, table->row_count);
    json_rows(&json, "launches", table->named, table->named_count);
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

/* The size at which a model is usually trained, where no dataset says it. */
static void set_size(bench_setup *setup) {
    static const struct {
        const char *model;
        int side, classes;
    } sizes[] = {{"gpt2", 1024, 50257},
                 {"resnet18", 224, 1000},
                 {"resnet34", 224, 1000},
                 {"resnet50", 224, 1000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && setup->dataset == NULL; i++)
        if (strcspn(setup->model, ":") == strlen(sizes[i].model) &&
            strncmp(setup->model, sizes[i].model, strlen(sizes[i].model)) == 0) {
            setup->side = sizes[i].side;
            setup->classes = sizes[i].classes;
        }
}

yoke_status bench_count(const bench_setup *given, bool json) {
    bench_setup setup = *given;
    /* Nothing can be measured: the candidates that the model of the GPU takes for faster, and
     * elsewhere the first. */
    static const char *const prefers[] = {
        "joined",     "added by the same pass", "shadow in the update",
        "one kernel", "with batch norm",        NULL};
    setup.prefers = prefers;
    setup.algorithm = YOKE_ALGORITHM_DIRECT;
    set_size(&setup);
    if (!simcuda_count_open())
        return cli_refuse(YOKE_ERROR_ARGUMENT, "--count: the simulated GPUs run already");
    count_table table = {0};
    yoke_status status = bench_engine_create(&table.engine, &setup);
    if (status == YOKE_OK && table.engine->setup.devices != 1)
        status = cli_refuse(YOKE_ERROR_ARGUMENT, "--count counts one device: --device cuda:0");
    if (status == YOKE_OK) status = run(&table);
    if (status == YOKE_OK) status = list_least(&table);
    if (status == YOKE_OK) join(&table);
    if (status == YOKE_OK && json) status = print_json(&table);
    if (status == YOKE_OK && !json) print_table(&table);
    free(table.least);
    free(table.rows);
    free(table.named);
    bench_engine_destroy(table.engine);
    return status;
}

#endif
