/* SPDX-License-Identifier: Apache-2.0 */
/* The distinct convolutions of ResNet-50 at 224 pixels, in each direction: the plans that cuDNN's
 * backend names first, beside matrix products and cuDNN's algorithms; and the stem with 3, 4 and 8
 * channels. Each direction of a layer has an equal part of the time that is left. */
#include <math.h>
#include <stdlib.h>

#include "probe/probe.h"

#define SECTION "convolution"
#define SAMPLES 512
#define SLOW 2.0 /* times the best so far: such a variant is timed once */
#define SCRATCH_BYTES ((size_t)1 << 30)
#define TINY_SCRATCH_BYTES ((size_t)32 << 20)

typedef struct layer {
    const char *model;
    int count; /* in the model */
    int in, size, out, kernel, stride, padding;
} layer;

/* The stems; then the longest first: what the time leaves out matters least. */
#define STEMS 3
static const layer layers[] = {
    {"resnet50 stem, 3 channels", 1, 3, 224, 64, 7, 2, 3},
    {"resnet50 stem, 4 channels", 0, 4, 224, 64, 7, 2, 3},
    {"resnet50 stem, 8 channels", 0, 8, 224, 64, 7, 2, 3},
    {"resnet50", 3, 64, 56, 64, 3, 1, 1},
    {"resnet50", 4, 64, 56, 256, 1, 1, 0},
    {"resnet50", 2, 256, 56, 64, 1, 1, 0},
    {"resnet50", 1, 64, 56, 64, 1, 1, 0},
    {"resnet50", 3, 128, 28, 128, 3, 1, 1},
    {"resnet50", 4, 128, 28, 512, 1, 1, 0},
    {"resnet50", 3, 512, 28, 128, 1, 1, 0},
    {"resnet50", 5, 256, 14, 256, 3, 1, 1},
    {"resnet50", 6, 256, 14, 1024, 1, 1, 0},
    {"resnet50", 5, 1024, 14, 256, 1, 1, 0},
    {"resnet50", 2, 512, 7, 512, 3, 1, 1},
    {"resnet50", 3, 512, 7, 2048, 1, 1, 0},
    {"resnet50", 2, 2048, 7, 512, 1, 1, 0},
    {"resnet50", 1, 256, 56, 512, 1, 2, 0},
    {"resnet50", 1, 256, 56, 128, 1, 1, 0},
    {"resnet50", 1, 128, 56, 128, 3, 2, 1},
    {"resnet50", 1, 512, 28, 1024, 1, 2, 0},
    {"resnet50", 1, 512, 28, 256, 1, 1, 0},
    {"resnet50", 1, 256, 28, 256, 3, 2, 1},
    {"resnet50", 1, 1024, 14, 2048, 1, 2, 0},
    {"resnet50", 1, 1024, 14, 512, 1, 1, 0},
    {"resnet50", 1, 512, 14, 512, 3, 2, 1},
};

/* The plans of cuDNN's backend that its heuristics name first come first: they are what nobody
 * knows yet. */
static const struct {
    const char *name;
    yoke_status (*create)(cuda_pass **pass, const cuda_problem *problem, cuda_direction direction,
                          int variant);
    int variants;
} kinds[] = {{"cuDNN plan", cuda_graph_pass, 3},
             {"matrix product", cuda_product_pass, CUDA_PRODUCT_ALGORITHMS},
             {"cuDNN", cuda_cudnn_pass, 8}};

static const char *const direction_names[CUDA_DIRECTIONS] = {"forward", "backward data",
                                                             "backward weights"};

/* One direction of one layer. */
typedef struct pass_course {
    gpu_probe *probe;
    cuda_problem problem;
    yoke_operation operation;
    cuda_direction direction;
    probe_shape shape;
    cuda_operands operands;
    void *result; /* the operand that the pass writes */
    size_t result_count;
    char what[128];
    double wanted[SAMPLES], best_ms;
    char best[CUDA_NAME_BYTES + 32 + 16];
    double ends_seconds; /* of the probe's: no more variants begin */
    bool cut;            /* some were left out */
} pass_course;

/* Device memory, for the largest of all layers. */
typedef struct probe_memory {
    cuda_device *device;
    void *input, *weights, *output, *scratch;
    size_t scratch_bytes;
    uint64_t *places; /* [SAMPLES] */
    double *parts;    /* [SAMPLES][PROBE_PARTS] */
    float *picked;    /* [SAMPLES] */
    uint64_t host_places[SAMPLES];
} probe_memory;

typedef struct contender {
    const pass_course *course;
    const cuda_pass *pass;
} contender;

static yoke_status run(void *context) {
    const contender *variant = context;
    return variant->pass->run(variant->pass, &variant->course->operands);
}

/* Shapes. */

static int least(int a, int b) {
    return a < b ? a : b;
}

static yoke_operation operation_of(const gpu_probe *probe, const layer *of) {
    int shrink = probe->tiny ? 16 : 1, size = probe->tiny ? least(of->size, 9) : of->size;
    int in = of->in > 8 ? of->in / shrink : of->in;
    int pixels = (size + 2 * of->padding - of->kernel) / of->stride + 1;
    return (yoke_operation){.kind = YOKE_OP_CONV2D,
                            .name = of->model,
                            .input = {in, size, size, false},
                            .output = {of->out / shrink, pixels, pixels, false},
                            .kernel = of->kernel,
                            .stride = of->stride,
                            .padding = of->padding,
                            .groups = 1,
                            .dilation = 1};
}

static int rows_of(const gpu_probe *probe) {
    return probe->tiny ? 2 : probe->rows;
}

static probe_shape shape_of(const cuda_problem *problem) {
    const yoke_operation *o = problem->operation;
    return (probe_shape){problem->rows,      o->input.channels, o->input.height, o->input.width,
                         o->output.channels, o->output.height,  o->output.width, o->kernel,
                         o->stride,          o->padding};
}

static size_t weight_count(const yoke_operation *o) {
    return (size_t)o->output.channels * (size_t)o->input.channels * (size_t)(o->kernel * o->kernel);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static yoke_status allocate(probe_memory *memory, const gpu_probe *probe) {
    size_t input = 0, weights = 0, output = 0;
    yoke_device *device = &probe->device->base;
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        yoke_operation o = operation_of(probe, &layers[i]);
        size_t rows = (size_t)rows_of(probe);
        input = larger(input, rows * cuda_dims_count(o.input));
        weights = larger(weights, weight_count(&o));
        output = larger(output, rows * cuda_dims_count(o.output));
    }
    size_t bytes = cuda_type_bytes(cuda_compute_type(probe->precision));
    memory->device = probe->device;
    memory->scratch_bytes = probe->tiny ? TINY_SCRATCH_BYTES : SCRATCH_BYTES;
    TRY(yoke_device_allocate(device, input * bytes, "the probe", &memory->input));
    TRY(yoke_device_allocate(device, weights * sizeof(float), "the probe", &memory->weights));
    TRY(yoke_device_allocate(device, output * bytes, "the probe", &memory->output));
    TRY(yoke_device_allocate(device, memory->scratch_bytes, "the probe", &memory->scratch));
    TRY(yoke_device_allocate(device, SAMPLES * sizeof(uint64_t), "the probe",
                             (void **)&memory->places));
    TRY(yoke_device_allocate(device, SAMPLES * PROBE_PARTS * sizeof(double), "the probe",
                             (void **)&memory->parts));
    return yoke_device_allocate(device, SAMPLES * sizeof(float), "the probe",
                                (void **)&memory->picked);
}

static void release(probe_memory *memory) {
    void *const all[] = {memory->picked, memory->parts,   memory->places, memory->scratch,
                         memory->output, memory->weights, memory->input};
    for (size_t i = 0; memory->device != NULL && i < sizeof all / sizeof all[0]; i++)
        yoke_device_free(&memory->device->base, all[i]);
}

/* The reference. */

static yoke_status download(const probe_memory *memory, void *to, const void *from, size_t bytes) {
    cuda_device *device = memory->device;
    TRY_CUDA(device, cudaStreamSynchronize(device->streams[YOKE_STREAM_COMPUTE]));
    TRY_CUDA(device, cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
    return YOKE_OK;
}

static yoke_status choose_places(probe_memory *memory, size_t count) {
    cuda_device *device = memory->device;
    uint64_t state = 1;
    for (int i = 0; i < SAMPLES; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        memory->host_places[i] = (state >> 20) % count;
    }
    return yoke_device_upload(&device->base, YOKE_STREAM_COMPUTE, memory->places,
                              memory->host_places, sizeof memory->host_places);
}

static cudaError_t queue_reference(const pass_course *of, const probe_memory *memory) {
    static cudaError_t (*const runs[CUDA_DIRECTIONS])(
        double *, const void *, const void *, int, probe_shape, const uint64_t *, size_t,
        cudaStream_t) = {probe_run_forward, probe_run_data, probe_run_weights};
    const cuda_operands *operands = &of->operands;
    const void *first = of->direction == CUDA_BACKWARD_DATA ? operands->output : operands->input;
    const void *second =
        of->direction == CUDA_BACKWARD_WEIGHTS ? operands->output : operands->weights;
    return runs[of->direction](memory->parts, first, second, of->problem.type == CUDA_BFLOAT16,
                               of->shape, memory->places, SAMPLES,
                               memory->device->streams[YOKE_STREAM_COMPUTE]);
}

static yoke_status compute_reference(pass_course *of, const probe_memory *memory) {
    size_t bytes = SAMPLES * PROBE_PARTS * sizeof(double);
    double *parts = malloc(bytes);
    if (parts == NULL) return FAIL_MEMORY(bytes, "a reference");
    cudaError_t error = queue_reference(of, memory);
    yoke_status status = error == cudaSuccess ? download(memory, parts, memory->parts, bytes)
                                              : cuda_failed(memory->device, error, "a reference");
    for (int i = 0; i < SAMPLES; i++) {
        of->wanted[i] = 0;
        for (int k = 0; status == YOKE_OK && k < PROBE_PARTS; k++)
            of->wanted[i] += parts[i * PROBE_PARTS + k];
    }
    free(parts);
    return status;
}

/* The root mean square of the samples' errors, relative to that of the samples. */
static yoke_status compare(const pass_course *of, const probe_memory *memory, bool half,
                           double *error) {
    float picked[SAMPLES];
    cuda_device *device = memory->device;
    TRY_CUDA(device, probe_run_pick(memory->picked, of->result, half, memory->places, SAMPLES,
                                    device->streams[YOKE_STREAM_COMPUTE]));
    TRY(download(memory, picked, memory->picked, sizeof picked));
    double errors = 0, squares = 0;
    for (int i = 0; i < SAMPLES; i++) {
        errors += pow((double)picked[i] - of->wanted[i], 2);
        squares += pow(of->wanted[i], 2);
    }
    *error = sqrt(errors / (squares > 0 ? squares : 1));
    return YOKE_OK;
}

#define TF32_ERROR 2e-3

/* bfloat16 keeps 8 bits, TF32 11; Winograd loses a few of float32's 24. */
static double tolerance_of(const pass_course *of) {
    if (of->problem.type == CUDA_BFLOAT16) return 2e-2;
    return of->problem.tf32 ? TF32_ERROR : 1e-4;
}

/* Variants. */

static void print_variant(const pass_course *of, const char *variant, const char *detail,
                          const char *verdict, const double numbers[2]) {
    probe_row row = PROBE_ROW_INIT;
    row.section = SECTION;
    row.what = of->what;
    row.direction = direction_names[of->direction];
    row.variant = variant;
    row.detail = detail;
    row.verdict = verdict;
    if (numbers != NULL) row.milliseconds = numbers[0], row.error = numbers[1];
    probe_print(of->probe, &row);
}

/* Runs a variant on a result that holds NaN everywhere, then compares. A variant that fails with
 * DEVICE does not serve. */
static yoke_status check(const contender *variant, const probe_memory *memory, bool half,
                         double *error) {
    const pass_course *of = variant->course;
    cuda_device *device = memory->device;
    size_t bytes = of->result_count * (half ? sizeof(uint16_t) : sizeof(float));
    TRY_CUDA(device,
             cudaMemsetAsync(of->result, 0xff, bytes, device->streams[YOKE_STREAM_COMPUTE]));
    TRY(run((void *)variant));
    return compare(of, memory, half, error);
}

static yoke_status time_variant(contender *variant, pass_course *of, double *milliseconds) {
    TRY(probe_time(of->probe, run, variant, true, milliseconds));
    if (of->probe->tiny || *milliseconds > SLOW * of->best_ms) return YOKE_OK;
    return probe_time(of->probe, run, variant, false, milliseconds);
}

static yoke_status check_and_time(contender *variant, pass_course *of, const probe_memory *memory,
                                  bool half, const char *name, const char *detail) {
    double numbers[2] = {-1, -1};
    TRY(check(variant, memory, half, &numbers[1]));
    if (cuda_is_graph_text(variant->pass->configuration) && of->problem.type == CUDA_FLOAT32 &&
        numbers[1] > tolerance_of(of) && numbers[1] <= TF32_ERROR) {
        print_variant(of, name, detail, "rounds to TF32", numbers);
        return YOKE_OK;
    }
    if (!(numbers[1] <= tolerance_of(of))) {
        of->probe->wrong++;
        print_variant(of, name, detail, PROBE_WRONG, numbers);
        return YOKE_OK;
    }
    TRY(time_variant(variant, of, &numbers[0]));
    print_variant(of, name, detail, NULL, numbers);
    if (numbers[0] >= of->best_ms) return YOKE_OK;
    of->best_ms = numbers[0];
    snprintf(of->best, sizeof of->best, "%s%s%s", name, detail != NULL ? ", " : "",
             detail != NULL ? detail : "");
    return YOKE_OK;
}

/* A variant that there is no time for has a line. */
static bool leave_out(pass_course *of, const char *name) {
    if (probe_seconds(of->probe) <= of->ends_seconds) return false;
    print_variant(of, name, NULL, "no time", NULL);
    of->cut = true;
    return true;
}

/* A variant that does not serve has a line; a GPU that no call can use any more ends the probe. */
static yoke_status pass_over(const pass_course *of, const char *name, yoke_status status) {
    if (status != YOKE_ERROR_DEVICE || cuda_poisoned(of->probe->device)) return status;
    print_variant(of, name, yoke_last_error(), "does not serve", NULL);
    return YOKE_OK;
}

/* A plan has a line with its configuration, and its scratch. */
static const char *describe_pass(const cuda_pass *pass, char text[CUDA_NAME_BYTES]) {
    if (!cuda_is_graph_text(pass->configuration)) return NULL;
    snprintf(text, CUDA_NAME_BYTES, "%s, %.0f KiB", pass->configuration,
             (double)pass->scratch_bytes / 1024);
    return text;
}

static yoke_status probe_pass(pass_course *of, const probe_memory *memory, int kind, int rank) {
    char name[32], text[CUDA_NAME_BYTES];
    cuda_pass *pass = NULL;
    snprintf(name, sizeof name, "%s %d", kinds[kind].name, rank);
    if (leave_out(of, name)) return YOKE_OK;
    yoke_status status = kinds[kind].create(&pass, &of->problem, of->direction, rank);
    if (status == YOKE_OK && pass == NULL && kinds[kind].create == cuda_graph_pass && rank == 0)
        print_variant(of, name, NULL, "none", NULL);
    contender raced = {.course = of, .pass = pass};
    /* The pass widens a bfloat16 gradient of the weights itself. */
    bool half = of->problem.type == CUDA_BFLOAT16 && of->direction != CUDA_BACKWARD_WEIGHTS;
    const char *detail = pass != NULL ? describe_pass(pass, text) : NULL;
    if (status == YOKE_OK && pass != NULL && pass->scratch_bytes > memory->scratch_bytes)
        print_variant(of, name, "more than 1 GiB of scratch", "not run", NULL);
    else if (status == YOKE_OK && pass != NULL)
        status = check_and_time(&raced, of, memory, half, name, detail);
    if (pass != NULL) pass->destroy(pass);
    return pass_over(of, name, status);
}

/* Layers. */

static yoke_status probe_direction(pass_course *of, probe_memory *memory) {
    size_t input = (size_t)of->problem.rows * cuda_dims_count(of->operation.input);
    size_t output = (size_t)of->problem.rows * cuda_dims_count(of->operation.output);
    size_t weights = weight_count(&of->operation);
    bool half = of->problem.type == CUDA_BFLOAT16;
    cuda_device *device = memory->device;
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    of->operands = (cuda_operands){.input = memory->input,
                                   .weights = memory->weights,
                                   .output = memory->output,
                                   .scratch = memory->scratch};
    void *const results[] = {memory->output, memory->input, memory->weights};
    const size_t counts[] = {output, input, weights};
    of->result = results[of->direction];
    of->result_count = counts[of->direction];
    of->best_ms = INFINITY;
    TRY_CUDA(device, cuda_run_probe(memory->input, half, input, stream));
    TRY_CUDA(device, cuda_run_probe(memory->weights, half, weights, stream));
    TRY_CUDA(device, cuda_run_probe(memory->output, half, output, stream));
    TRY(choose_places(memory, of->result_count));
    TRY(compute_reference(of, memory));
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++)
        for (int rank = 0; rank < kinds[kind].variants; rank++)
            TRY(probe_pass(of, memory, (int)kind, rank));
    double numbers[2] = {of->best_ms, -1};
    const char *verdict = of->cut ? "fastest of those timed" : "fastest";
    if (isfinite(of->best_ms)) print_variant(of, of->best, NULL, verdict, numbers);
    return YOKE_OK;
}

static void describe(pass_course *of, gpu_probe *probe, const layer *which, int direction) {
    *of = (pass_course){.probe = probe, .operation = operation_of(probe, which)};
    of->direction = (cuda_direction)direction;
    of->problem = (cuda_problem){.device = probe->device,
                                 .operation = &of->operation,
                                 .rows = rows_of(probe),
                                 .type = cuda_compute_type(probe->precision),
                                 .tf32 = probe->precision == YOKE_TF32};
    of->shape = shape_of(&of->problem);
    const yoke_operation *o = &of->operation;
    snprintf(of->what, sizeof of->what, "%s, %d of it, %d x %dx%dx%d to %d, kernel %d/%d",
             which->model, which->count, of->problem.rows, o->input.channels, o->input.height,
             o->input.width, o->output.channels, o->kernel, o->stride);
}

/* A direction whose time was cut is asked again by --missing. */
static yoke_status probe_item(pass_course *of, probe_memory *memory) {
    gpu_probe *probe = of->probe;
    TRY(probe_direction(of, memory));
    if (of->cut)
        probe->left_out++;
    else
        probe_answered(probe, SECTION, of->what, direction_names[of->direction]);
    return YOKE_OK;
}

static yoke_status probe_layers(gpu_probe *probe, size_t first, size_t end) {
    probe_memory memory = {0};
    pass_course of;
    int open = 0;
    size_t from = first * CUDA_DIRECTIONS, to = end * CUDA_DIRECTIONS;
    for (size_t i = from; i < to; i++) {
        describe(&of, probe, &layers[i / CUDA_DIRECTIONS], (int)(i % CUDA_DIRECTIONS));
        open += !probe_is_known(probe, SECTION, of.what, direction_names[of.direction]);
    }
    yoke_status status = open > 0 ? allocate(&memory, probe) : YOKE_OK;
    for (size_t i = from; i < to && status == YOKE_OK && open > 0; i++) {
        describe(&of, probe, &layers[i / CUDA_DIRECTIONS], (int)(i % CUDA_DIRECTIONS));
        if (!probe_ask(probe, SECTION, of.what, direction_names[of.direction])) continue;
        double now = probe_seconds(probe);
        of.ends_seconds = now + (probe->seconds - now) / open--;
        status = probe_item(&of, &memory);
    }
    release(&memory);
    return status;
}

yoke_status probe_stem(gpu_probe *probe) {
    return probe_layers(probe, 0, STEMS);
}

yoke_status probe_plans(gpu_probe *probe) {
    return probe_layers(probe, STEMS, sizeof layers / sizeof layers[0]);
}
