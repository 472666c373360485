/* SPDX-License-Identifier: Apache-2.0 */
/* Linear by dnnl_sgemm on plain matrices. The rows of a weight are padded (sgemm.h). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/factors.h"
#include "device/cpu/processor.h"
#include "device/cpu/sgemm.h"
#include "device/cpu/sgemm_linear.h"

enum {
    COLUMNS = 256,       /* of a gradient that a thread sums at a time */
    ROWS_OF_A_PART = 64, /* that are summed before they are added to the whole sum */
    RUNS = 4             /* of a measurement */
};

typedef struct sgemm_linear {
    yoke_plan base;
    size_t rows, in, out;
    size_t pitch;    /* floats from one row of the weight to the next */
    bool by_output;  /* the weight is [out, pitch] in memory, otherwise [in, pitch] */
    bool by_factors; /* no sgemm computes the weight's gradient */
} sgemm_linear;

static yoke_status multiply(const cpu_sgemm *product) {
    TRY_DNNL(cpu_sgemm_run(product));
    return YOKE_OK;
}

static yoke_status linear_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    const sgemm_linear *self = (const sgemm_linear *)plan;
    const yoke_plan_binding *at = &plan->binding;
    bool bias = plan->operation.bias;
    float *output = at->output;
    int threads = plan->device->threads;
    if (bias) {
#pragma omp parallel for num_threads(threads) if (cpu_is_parallel(threads, self->rows * self->out))
        for (size_t row = 0; row < self->rows; row++)
            memcpy(output + row * self->out, at->parameters[1], self->out * sizeof *output);
    }
    return multiply(&(cpu_sgemm){.transpose_b = self->by_output,
                                 .add = bias,
                                 .rows = self->rows,
                                 .columns = self->out,
                                 .depth = self->in,
                                 .a = at->inputs[0],
                                 .a_row = self->in,
                                 .b = at->parameters[0],
                                 .b_row = self->pitch,
                                 .to = output,
                                 .to_row = self->out});
}

static yoke_status data_gradient(const sgemm_linear *self) {
    const yoke_plan_binding *at = &self->base.binding;
    return multiply(&(cpu_sgemm){.transpose_b = !self->by_output,
                                 .rows = self->rows,
                                 .columns = self->in,
                                 .depth = self->out,
                                 .a = at->output_gradient,
                                 .a_row = self->out,
                                 .b = at->parameters[0],
                                 .b_row = self->pitch,
                                 .to = at->input_gradients[0],
                                 .to_row = self->in});
}

/* The rounding error of a long sum grows with the length of its longest part. */
CPU_CLONES static void sum_columns(const sgemm_linear *self, size_t begin, size_t end, bool adds,
                                   float *sums) {
    const float *gradient = self->base.binding.output_gradient;
    size_t count = end - begin;
    if (!adds) memset(sums + begin, 0, count * sizeof *sums);
    for (size_t first = 0; first < self->rows; first += ROWS_OF_A_PART) {
        size_t last = self->rows - first < ROWS_OF_A_PART ? self->rows : first + ROWS_OF_A_PART;
        float part[COLUMNS] = {0};
        for (size_t row = first; row < last; row++)
#pragma omp simd
            for (size_t i = 0; i < count; i++)
                part[i] += gradient[row * self->out + begin + i];
        for (size_t i = 0; i < count; i++)
            sums[begin + i] += part[i];
    }
}

static void bias_gradient(const sgemm_linear *self, bool adds, float *sums) {
    int threads = self->base.device->threads;
#pragma omp parallel for num_threads(threads) if (cpu_is_parallel(threads, self->rows * self->out))
    for (size_t begin = 0; begin < self->out; begin += COLUMNS)
        sum_columns(self, begin, self->out - begin < COLUMNS ? self->out : begin + COLUMNS, adds,
                    sums);
}

/* The padding of a gradient is added and checked with it. */
static void clear_padding(const sgemm_linear *self, float *gradient) {
    size_t rows = self->by_output ? self->out : self->in;
    size_t whole = self->by_output ? self->in : self->out;
    for (size_t row = 0; row < rows && whole < self->pitch; row++)
        memset(gradient + row * self->pitch + whole, 0, (self->pitch - whole) * sizeof *gradient);
}

static yoke_status weight_gradient(const sgemm_linear *self, bool adds) {
    const yoke_plan_binding *at = &self->base.binding;
    const float *input = at->inputs[0], *dy = at->output_gradient;
    clear_padding(self, at->parameter_gradients[0]);
    if (self->base.operation.bias) bias_gradient(self, adds, at->parameter_gradients[1]);
    const cpu_sgemm product = {.transpose_a = true,
                               .add = adds,
                               .rows = self->by_output ? self->out : self->in,
                               .columns = self->by_output ? self->in : self->out,
                               .depth = self->rows,
                               .a = self->by_output ? dy : input,
                               .a_row = self->by_output ? self->out : self->in,
                               .b = self->by_output ? input : dy,
                               .b_row = self->by_output ? self->in : self->out,
                               .to = at->parameter_gradients[0],
                               .to_row = self->pitch};
    TRY_DNNL(cpu_sgemm_over_rows(&product, self->base.device->threads, at->scratch));
    return YOKE_OK;
}

static yoke_status keep_factors(const sgemm_linear *self) {
    const yoke_plan_binding *at = &self->base.binding;
    cpu_factors_keep(self->base.factors, at->inputs[0], at->output_gradient);
    if (self->base.operation.bias) bias_gradient(self, false, at->parameter_gradients[1]);
    return YOKE_OK;
}

static yoke_status linear_part(yoke_plan *plan, yoke_direction direction) {
    const sgemm_linear *self = (const sgemm_linear *)plan;
    if (plan->algorithms[direction] == NULL) return YOKE_OK; /* the request wants no such pass */
    if (direction == YOKE_BACKWARD_DATA) return data_gradient(self);
    if (plan->factors == NULL) return weight_gradient(self, false);
    TRY(keep_factors(self));
    cpu_factors_multiply(plan->factors, cpu_of(plan->device), plan->binding.parameter_gradients[0]);
    return YOKE_OK;
}

static yoke_status linear_backward(yoke_plan *plan, const yoke_plan_step *step) {
    const sgemm_linear *self = (const sgemm_linear *)plan;
    bool trains = plan->algorithms[YOKE_BACKWARD_WEIGHTS] != NULL;
    if (trains && plan->factors == NULL) TRY(weight_gradient(self, step->adds_parameter_gradients));
    if (plan->factors != NULL)
        TRY(step->factors_only ? keep_factors(self) : linear_part(plan, YOKE_BACKWARD_WEIGHTS));
    return linear_part(plan, YOKE_BACKWARD_DATA);
}

static void linear_destroy(yoke_plan *plan) {
    cpu_factors_destroy(plan->factors, cpu_of(plan->device));
    yoke_free(plan);
}

/* Planning. */

/* Reads a weight's layout, [out, in] with any strides of whole rows. */
static bool read_layout(sgemm_linear *self, const cpu_desc *desc) {
    const size_t strides[] = {(size_t)desc->strides[0], (size_t)desc->strides[1]};
    bool plain = desc->is_blocked && desc->inner_count == 0 && desc->offset == 0 &&
                 desc->type == dnnl_f32 && desc->ndims == 2;
    if (!plain) return false;
    self->by_output = strides[1] == 1 && strides[0] >= self->in;
    self->pitch = strides[self->by_output ? 0 : 1];
    return self->by_output || (strides[0] == 1 && strides[1] >= self->out);
}

/* NULL: the plan may choose. */
static yoke_status given_layout(const cpu_desc **desc, cpu_device *device,
                                const yoke_plan_request *request) {
    const yoke_operation *operation = request->operation;
    const dnnl_dims_t shape = {operation->output.channels, operation->input.channels};
    *desc = cpu_layout_desc(&request->parameters[0]);
    if (operation->transposed || operation->plain_weight)
        TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, 2, shape, dnnl_f32,
                                 operation->transposed ? dnnl_ba : dnnl_ab));
    return YOKE_OK;
}

/* A weight that lies as in x out is read fastest by forward, as out x in by backward. Which takes
 * less time together depends on the shape: both are measured. */
enum { IN_BY_OUT, OUT_BY_IN, ORDERS };

static const char *const order_names[ORDERS] = {"in x out", "out x in"};

static const char *name_of_order(const void *context, int candidate) {
    (void)context;
    return candidate < ORDERS ? order_names[candidate] : NULL;
}

static void take_order(sgemm_linear *self, int order) {
    self->by_output = order == OUT_BY_IN;
    self->pitch = cpu_sgemm_pitch(self->by_output ? self->in : self->out);
}

/* Milliseconds of all passes, the best of a few runs. */
static yoke_status time_passes(sgemm_linear *trial, double *milliseconds) {
    const yoke_plan_step step = {0};
    *milliseconds = INFINITY;
    for (int run = 0; run < RUNS; run++) {
        uint64_t begin = yoke_now_ns();
        TRY(linear_forward(&trial->base, &step));
        TRY(linear_backward(&trial->base, &step));
        *milliseconds = fmin(*milliseconds, (double)(yoke_now_ns() - begin) * 1e-6);
    }
    return YOKE_OK;
}

static yoke_status measure_order(const sgemm_linear *self, int order, float *memory,
                                 double *milliseconds) {
    sgemm_linear trial = *self;
    yoke_plan_binding *at = &trial.base.binding;
    take_order(&trial, order);
    size_t weights = trial.pitch * (trial.by_output ? trial.out : trial.in);
    float *input = memory, *output = input + trial.rows * trial.in;
    float *weight = output + trial.rows * trial.out, *gradient = weight + weights;
    /* A gradient is measured over its value. */
    at->inputs[0] = at->input_gradients[0] = input;
    at->output = at->output_gradient = output;
    at->parameters[0] = weight;
    at->parameter_gradients[0] = gradient;
    at->scratch = gradient + weights;
    trial.base.operation.bias = false;
    if (self->by_factors) trial.base.algorithms[CPU_BACKWARD_WEIGHTS] = NULL;
    for (float *value = memory; value < gradient; value++)
        *value = 1e-3f * (float)((value - memory) % 97 - 48); /* products can be faster on zeros */
    return time_passes(&trial, milliseconds);
}

static yoke_status measure_orders(const sgemm_linear *self, const yoke_plan_request *request,
                                  const char *key, int *best) {
    yoke_device *device = self->base.device;
    double best_ms = INFINITY, milliseconds = 0;
    size_t weights = (self->in + CPU_LINE) * (self->out + CPU_LINE); /* padded, either way */
    size_t floats = self->rows * (self->in + self->out) + 2 * weights +
                    cpu_sgemm_scratch_floats(self->in, self->out) +
                    cpu_sgemm_scratch_floats(self->out, self->in);
    void *memory = NULL;
    TRY(yoke_device_allocate(device, floats * sizeof(float), "measuring", &memory));
    yoke_status status = YOKE_OK;
    for (int order = 0; status == YOKE_OK && order < ORDERS; order++) {
        status = yoke_algorithms_go_on(request->algorithms);
        if (status == YOKE_OK) status = measure_order(self, order, memory, &milliseconds);
        if (status == YOKE_OK && milliseconds < best_ms) {
            best_ms = milliseconds;
            *best = order;
        }
    }
    yoke_device_free(device, memory);
    TRY(status);
    return yoke_algorithms_add(request->algorithms, key, *best, order_names[*best], best_ms);
}

static yoke_status choose_order(sgemm_linear *self, const yoke_plan_request *request) {
    static const yoke_algorithm_names names = {.name_of = name_of_order};
    int order = IN_BY_OUT;
    if (request->algorithm != YOKE_ALGORITHM_DIRECT && request->algorithms != NULL) {
        char key[YOKE_CONVOLUTION_KEY_BYTES];
        snprintf(key, sizeof key, "linear %zu to %zu at %d positions float32 %d threads sgemm%s%s",
                 self->in, self->out, request->operation->input.height, self->base.device->threads,
                 request->inference ? " inference" : "", self->by_factors ? " factors" : "");
        TRY(yoke_algorithms_find(request->algorithms, key, &names, &order));
        if (order < 0 && yoke_algorithms_late(request->algorithms)) {
            order = IN_BY_OUT;
            TRY(yoke_algorithms_assume(request->algorithms, key, order, order_names[order]));
        } else if (order < 0) {
            TRY(measure_orders(self, request, key, &order));
        }
    }
    take_order(self, order);
    return YOKE_OK;
}

static yoke_status describe_weight(const cpu_desc **desc, cpu_device *device,
                                   const sgemm_linear *self) {
    const dnnl_dims_t shape = {(dnnl_dim_t)self->out, (dnnl_dim_t)self->in};
    const dnnl_dim_t pitch = (dnnl_dim_t)self->pitch;
    const dnnl_dims_t by_output = {pitch, 1}, by_input = {1, pitch};
    TRY_DNNL(cpu_desc_by_strides(desc, &device->descs, 2, shape, dnnl_f32,
                                 self->by_output ? by_output : by_input));
    return YOKE_OK;
}

/* Whether the input is a plain matrix of float32. */
static yoke_status is_plain(bool *plain, cpu_device *device, const yoke_plan_request *request) {
    const cpu_desc *matrix = NULL, *input = NULL, *given = cpu_layout_desc(&request->inputs[0]);
    yoke_dims dims = request->operation->input;
    const dnnl_dims_t shape = {request->rows * (dnnl_dim_t)dims.height, dims.channels};
    TRY_DNNL(cpu_desc_by_tag(&matrix, &device->descs, 2, shape, dnnl_f32, dnnl_ab));
    TRY(cpu_value_desc(&input, device, request->rows, dims, dnnl_f32, dnnl_nchw));
    *plain = given == input;
    if (given != input && given->type == dnnl_f32 && given->inner_count == 0)
        *plain = cpu_desc_reshape(&input, &device->descs, given, 2, shape) == dnnl_success &&
                 input == matrix;
    return YOKE_OK;
}

yoke_status cpu_takes_sgemm_linear(bool *takes, cpu_device *device,
                                   const yoke_plan_request *request) {
    const cpu_desc *weight = NULL;
    sgemm_linear read = {.in = (size_t)request->operation->input.channels,
                         .out = (size_t)request->operation->output.channels};
    *takes = request->precision == YOKE_FLOAT32 &&
             (request->algorithm == YOKE_ALGORITHM_DIRECT || cpu_prefers_sgemm());
    if (*takes) TRY(is_plain(takes, device, request));
    TRY(given_layout(&weight, device, request));
    *takes = *takes && (weight == NULL || read_layout(&read, weight));
    return YOKE_OK;
}

yoke_status cpu_plan_sgemm_linear(yoke_plan **plan, cpu_device *device,
                                  const yoke_plan_request *request) {
    static const yoke_plan_calls calls = {NULL, linear_forward, linear_backward, linear_destroy,
                                          .backward_part = linear_part};
    TRY(yoke_plan_allocate(plan, sizeof(sgemm_linear), &device->base, request, &calls));
    sgemm_linear *self = (sgemm_linear *)*plan;
    const yoke_operation *operation = request->operation;
    self->rows = (size_t)request->rows * (size_t)operation->input.height;
    self->in = (size_t)operation->input.channels;
    self->out = (size_t)operation->output.channels;
    const bool passes[CPU_DIRECTIONS] = {true, request->training && request->input_gradient,
                                         request->training && !request->frozen};
    for (int direction = 0; direction < CPU_DIRECTIONS; direction++)
        if (passes[direction]) self->base.algorithms[direction] = "sgemm";
    self->by_factors = passes[CPU_BACKWARD_WEIGHTS] && cpu_takes_factors(request);
    const cpu_desc *weight = NULL;
    TRY(given_layout(&weight, device, request));
    if (weight == NULL) {
        TRY(choose_order(self, request));
        TRY(describe_weight(&weight, device, self));
    } else if (!read_layout(self, weight)) {
        return FAIL(YOKE_ERROR_INTERNAL, "%s: its weight is no plain matrix", operation->name);
    }
    yoke_plan_needs *needs = &self->base.needs;
    const int64_t in = operation->input.channels, out = operation->output.channels;
    if (operation->transposed)
        TRY(yoke_layout_plain(&device->base, (const int64_t[]){in, out}, 2, &needs->parameters[0]));
    else
        cpu_layout_store(&needs->parameters[0], weight);
    if (operation->bias) TRY(yoke_layout_plain(&device->base, &out, 1, &needs->parameters[1]));
    if (request->training)
        needs->scratch_bytes = cpu_sgemm_scratch_floats(self->in, self->out) * sizeof(float);
    needs->backward_reads[0] = request->training && !request->frozen;
    if (self->by_factors)
        TRY(cpu_factors_create(&self->base.factors, device, weight, self->rows, false));
    if (self->base.factors != NULL) self->base.algorithms[CPU_BACKWARD_WEIGHTS] = "factors";
    needs->adds_parameter_gradients = self->base.factors == NULL;
    return cpu_plan_plain_output(*plan, request, dnnl_f32);
}
