/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: torch.nn.LayerNorm over the features of each position of a sequence, or of each row
 * of a flat value. Forward saves each position's mean and reciprocal standard deviation. The sums
 * over positions in backward run over parts whose number depends on the shape alone, so the bits do
 * not depend on the number of threads. */
#include <math.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"

#define PARTS 64
#define PART_POSITIONS 8 /* at least, in each part but the last */

typedef struct moments {
    float mean, reciprocal; /* 1 / sqrt(variance + epsilon) */
} moments;

typedef struct layer_norm_plan {
    yoke_plan base;
    size_t positions, features, parts, part_positions;
    float epsilon;
    bool half;
    const void *input, *output_gradient;
    void *output, *input_gradient;
    const float *weight, *bias;
    float *weight_gradient, *bias_gradient;
    moments *saved; /* [positions]; NULL: inference */
    float *sums;    /* [parts, 2, features], scratch of backward: those of the two gradients */
} layer_norm_plan;

/* One position. Sums have LANES partial results, so that their order does not depend on the
 * processor's vectors. */

#define INLINE static inline __attribute__((always_inline))

enum { LANES = 16 };

INLINE float sum_of(const float part[LANES]) {
    float pairs[LANES / 2];
    for (size_t l = 0; l < LANES / 2; l++)
        pairs[l] = part[l] + part[l + LANES / 2];
    for (size_t width = LANES / 4; width > 0; width /= 2)
        for (size_t l = 0; l < width; l++)
            pairs[l] += pairs[l + width];
    return pairs[0];
}

INLINE void add_values(const layer_norm_plan *norm, size_t at, size_t count, float *part,
                       bool half) {
#pragma omp simd
    for (size_t l = 0; l < count; l++)
        part[l] += cpu_load(norm->input, at + l, half);
}

INLINE void add_squares(const layer_norm_plan *norm, size_t at, size_t count, float mean,
                        float *part, bool half) {
#pragma omp simd
    for (size_t l = 0; l < count; l++) {
        float off = cpu_load(norm->input, at + l, half) - mean;
        part[l] += off * off;
    }
}

INLINE moments measure_position(const layer_norm_plan *norm, size_t at, bool half) {
    float sums[LANES] = {0}, squares[LANES] = {0}, count = (float)norm->features;
    size_t whole = norm->features / LANES * LANES, rest = norm->features - whole;
    for (size_t i = 0; i < whole; i += LANES)
        add_values(norm, at + i, LANES, sums, half);
    add_values(norm, at + whole, rest, sums, half);
    float mean = sum_of(sums) / count;
    for (size_t i = 0; i < whole; i += LANES)
        add_squares(norm, at + i, LANES, mean, squares, half);
    add_squares(norm, at + whole, rest, mean, squares, half);
    return (moments){mean, 1 / sqrtf(sum_of(squares) / count + norm->epsilon)};
}

INLINE void normalise(const layer_norm_plan *norm, size_t position, bool half) {
    size_t at = position * norm->features;
    moments m = measure_position(norm, at, half);
#pragma omp simd
    for (size_t i = 0; i < norm->features; i++) {
        float value = (cpu_load(norm->input, at + i, half) - m.mean) * m.reciprocal;
        cpu_store(norm->output, at + i, half, value * norm->weight[i] + norm->bias[i]);
    }
    if (norm->saved != NULL) norm->saved[position] = m;
}

/* What backward sums: of a position, [LANES] each, and of all, [features] each. */
typedef struct slope_sums {
    float direct[LANES], projected[LANES];
    float *weight, *bias;
} slope_sums;

INLINE void add_slopes(const layer_norm_plan *norm, size_t at, size_t first, size_t count,
                       moments m, slope_sums *sums, bool half) {
#pragma omp simd
    for (size_t l = 0; l < count; l++) {
        float dy = cpu_load(norm->output_gradient, at + first + l, half);
        float xhat = (cpu_load(norm->input, at + first + l, half) - m.mean) * m.reciprocal;
        float g = dy * norm->weight[first + l];
        sums->weight[first + l] += dy * xhat;
        sums->bias[first + l] += dy;
        sums->direct[l] += g;
        sums->projected[l] += g * xhat;
    }
}

/* dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * weight; dx may be dy. */
INLINE void differentiate(const layer_norm_plan *norm, size_t position, float *weight_sum,
                          float *bias_sum, bool half) {
    size_t at = position * norm->features, whole = norm->features / LANES * LANES;
    moments m = norm->saved[position];
    slope_sums sums = {.weight = weight_sum, .bias = bias_sum};
    for (size_t i = 0; i < whole; i += LANES)
        add_slopes(norm, at, i, LANES, m, &sums, half);
    add_slopes(norm, at, whole, norm->features - whole, m, &sums, half);
    if (norm->input_gradient == NULL) return;
    float sum = sum_of(sums.direct) / (float)norm->features;
    float projection = sum_of(sums.projected) / (float)norm->features;
#pragma omp simd
    for (size_t i = 0; i < norm->features; i++) {
        float g = cpu_load(norm->output_gradient, at + i, half) * norm->weight[i];
        float xhat = (cpu_load(norm->input, at + i, half) - m.mean) * m.reciprocal;
        cpu_store(norm->input_gradient, at + i, half, m.reciprocal * (g - sum - xhat * projection));
    }
}

/* The positions of a part: the compiler makes a loop for each precision. */

CPU_CLONES static void forward_part(const layer_norm_plan *norm, size_t begin, size_t end) {
    for (size_t position = begin; norm->half && position < end; position++)
        normalise(norm, position, true);
    for (size_t position = begin; !norm->half && position < end; position++)
        normalise(norm, position, false);
}

CPU_CLONES static void backward_part(const layer_norm_plan *norm, size_t begin, size_t end,
                                     float *sums) {
    float *bias_sums = sums + norm->features;
    for (size_t position = begin; norm->half && position < end; position++)
        differentiate(norm, position, sums, bias_sums, true);
    for (size_t position = begin; !norm->half && position < end; position++)
        differentiate(norm, position, sums, bias_sums, false);
}

/* The plan. */

static bool is_parallel(const layer_norm_plan *norm) {
    return cpu_is_parallel(norm->base.device->threads, norm->positions * norm->features);
}

static size_t part_end(const layer_norm_plan *norm, size_t part) {
    size_t end = (part + 1) * norm->part_positions;
    return end < norm->positions ? end : norm->positions;
}

static yoke_status layer_norm_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const layer_norm_plan *norm = (const layer_norm_plan *)plan;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(norm))
    for (size_t part = 0; part < norm->parts; part++) {
        size_t begin = part * norm->part_positions;
        forward_part(norm, begin, part_end(norm, part));
    }
    return YOKE_OK;
}

static void add_parts(const layer_norm_plan *norm, float *gradient, const float *sums) {
    for (size_t part = 0; part < norm->parts; part++)
        for (size_t i = 0; i < norm->features; i++)
            gradient[i] = (part == 0 ? 0 : gradient[i]) + sums[part * 2 * norm->features + i];
}

static yoke_status layer_norm_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const layer_norm_plan *norm = (const layer_norm_plan *)plan;
    size_t features = norm->features;
#pragma omp parallel for num_threads(plan->device->threads) if (is_parallel(norm))
    for (size_t part = 0; part < norm->parts; part++) {
        float *sums = norm->sums + part * 2 * features;
        size_t begin = part * norm->part_positions;
        memset(sums, 0, 2 * features * sizeof *sums);
        backward_part(norm, begin, part_end(norm, part), sums);
    }
    if (norm->weight_gradient != NULL) add_parts(norm, norm->weight_gradient, norm->sums);
    if (norm->bias_gradient != NULL) add_parts(norm, norm->bias_gradient, norm->sums + features);
    return YOKE_OK;
}

static yoke_status layer_norm_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    layer_norm_plan *norm = (layer_norm_plan *)plan;
    norm->input = binding->inputs[0];
    norm->output = binding->output;
    norm->weight = binding->parameters[0];
    norm->bias = binding->parameters[1];
    if (plan->backward == NULL) return YOKE_OK;
    norm->saved = binding->saved;
    norm->sums = binding->scratch;
    norm->output_gradient = binding->output_gradient;
    norm->input_gradient = binding->input_gradients[0];
    norm->weight_gradient = binding->parameter_gradients[0];
    norm->bias_gradient = binding->parameter_gradients[1];
    return YOKE_OK;
}

yoke_status cpu_plan_layer_norm(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {layer_norm_bind, layer_norm_forward, layer_norm_backward,
                                          NULL,
                                          YOKE_IN_PLACE | YOKE_READS_INPUT | YOKE_HAS_PARAMETERS};
    const yoke_operation *operation = request->operation;
    const cpu_desc *given = cpu_layout_desc(&request->inputs[0]), *plain = NULL;
    TRY(cpu_value_desc(&plain, device, request->rows, operation->input, given->type, dnnl_nchw));
    if (given != plain)
        return FAIL(YOKE_ERROR_INTERNAL, "%s: a layer norm over a value that is not plain",
                    operation->name);
    TRY(yoke_plan_allocate(plan, sizeof(layer_norm_plan), &device->base, request, &calls));
    layer_norm_plan *norm = (layer_norm_plan *)*plan;
    int64_t features = operation->input.channels;
    norm->features = (size_t)features;
    norm->positions = (size_t)request->rows * (size_t)operation->input.height;
    norm->epsilon = (float)operation->epsilon;
    norm->half = given->type == dnnl_bf16;
    size_t most = (norm->positions + PARTS - 1) / PARTS;
    norm->part_positions = most > PART_POSITIONS ? most : PART_POSITIONS;
    norm->parts = (norm->positions + norm->part_positions - 1) / norm->part_positions;
    yoke_plan_needs *needs = &norm->base.needs;
    needs->output = request->inputs[0];
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(yoke_layout_plain(&device->base, &features, 1, &needs->parameters[i]));
    if (!request->training) return YOKE_OK;
    needs->saved_bytes = norm->positions * sizeof(moments);
    needs->scratch_bytes = norm->parts * 2 * norm->features * sizeof(float);
    return YOKE_OK;
}
