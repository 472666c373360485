/* SPDX-License-Identifier: Apache-2.0 */
/* Compares gradients with differences of the loss: (L(w + h d) - L(w - h d)) / 2h against the
 * gradient along d, in float32. Elements of d have the signs of the gradient's, so that their
 * contributions add up and stand out of the loss's rounding. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/host_guard.h"
#include "yoke/host_operation.h"

enum { ROWS = 4 };
#define TOLERANCE 1e-2

/* Relative to the size of a tensor's values. The first one that agrees counts: rounding blurs small
 * steps, and the loss bends, or has a kink, within large ones. */
static const double steps[] = {1e-2, 1e-3, 1e-4};
enum { STEPS = sizeof steps / sizeof steps[0] };

typedef struct check {
    yoke_gradient_check_options options;
    yoke_guarded_model guarded;
    const yoke_model *model; /* the guarded one */
    yoke_devices *devices;
    yoke_device *device;
    yoke_device_scope scope;
    bool entered;
    yoke_algorithms *algorithms;
    yoke_replica *replica;
    yoke_plan_step step;
    bool reads_tokens;
    yoke_gradient_check worst;
} check;

/* The replica and its batch. */

static yoke_status open_device(check *c) {
    yoke_devices_options open = {
        .struct_size = sizeof open, .list = "cpu", .threads = 1, .unbound = true};
    TRY(yoke_devices_open(&c->devices, &open));
    c->device = yoke_devices_at(c->devices, 0);
    TRY(yoke_device_start_team(c->device));
    TRY(yoke_device_enter(c->device, false, &c->scope));
    yoke_device_hold_signals(c->device);
    c->entered = true;
    return yoke_algorithms_create(&c->algorithms);
}

static yoke_status make_replica(check *c) {
    for (int k = 0; k < c->model->input_count; k++)
        c->reads_tokens = c->reads_tokens || yoke_model_tokens(c->model, k) > 0;
    const yoke_replica_options options = {.device = c->device,
                                          .algorithm = YOKE_ALGORITHM_DIRECT,
                                          .rows = c->options.rows,
                                          .algorithms = c->algorithms,
                                          .input_gradients = !c->reads_tokens};
    TRY(yoke_replica_create(&c->replica, c->model, &options));
    TRY(yoke_replica_allocate(c->replica, NULL, NULL));
    c->step = (yoke_plan_step){
        .seed = c->options.seed, .loss_scale = 1.0f / (float)c->options.rows, .loss_only = true};
    return yoke_replica_initialize(c->replica, c->options.seed);
}

/* Constants, as a bias of 0, move away from where they hide what is behind them. */
static yoke_status stir(check *c, int index) {
    const yoke_tensor *tensor = &c->model->tensors[index];
    if (!tensor->trainable || tensor->fill.kind != YOKE_FILL_CONSTANT) return YOKE_OK;
    float *values = yoke_malloc(tensor->count * sizeof *values);
    if (values == NULL) return FAIL_MEMORY(tensor->count * sizeof *values, "a tensor");
    yoke_random_uniform(values, tensor->count, tensor->fill.value - 0.3, tensor->fill.value + 0.3,
                        c->options.seed, YOKE_RANDOM_PROBE, (uint64_t)index);
    yoke_status status = yoke_replica_write(c->replica, index, false, values);
    yoke_free(values);
    return status;
}

/* On CPU devices the replica's memory is the host's. */
static yoke_status draw_batch(check *c) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(c->replica);
    const yoke_model *model = c->model;
    size_t rows = (size_t)c->options.rows;
    uint64_t seed = c->options.seed, stream = 0;
    for (int k = 0; k < model->input_count; k++) {
        size_t count = rows * yoke_model_input_elements(model, k);
        int tokens = yoke_model_tokens(model, k);
        float *values = memory->inputs[k];
        if (tokens == 0)
            yoke_random_normal(values, count, 1, seed, YOKE_RANDOM_SYNTHETIC, stream++);
        else
            yoke_random_uniform(values, count, 0, tokens, seed, YOKE_RANDOM_SYNTHETIC, stream++);
        for (size_t i = 0; i < count && tokens > 0; i++)
            values[i] = floorf(values[i]);
    }
    size_t outputs = rows * yoke_model_output_elements(model, 0);
    size_t labels = rows * yoke_model_positions(model);
    uint32_t classes = (uint32_t)yoke_model_output_shape(model).channels;
    if (memory->targets != NULL)
        yoke_random_uniform(memory->targets, outputs, 0, 1, seed, YOKE_RANDOM_SYNTHETIC, stream++);
    for (size_t i = 0; i < labels; i++)
        memory->labels[i] = (int32_t)((i * 7 + seed) % classes);
    return YOKE_OK;
}

/* A forward and a loss; with backward also the gradients. */
static yoke_status run(check *c, bool backward, double *loss) {
    const yoke_decode_request inputs = {.rows = c->options.rows};
    TRY(yoke_replica_decode(c->replica, &inputs));
    TRY(yoke_replica_forward(c->replica, c->options.rows, true, &c->step));
    TRY(yoke_replica_loss(c->replica, &c->step));
    double sum = yoke_replica_memory_of(c->replica)->scalars->loss_sum;
    *loss = sum * (double)c->step.loss_scale;
    if (!isfinite(*loss)) {
        const char *name = yoke_replica_first_nonfinite(c->replica);
        return FAIL(YOKE_ERROR_NUMERIC, "the loss is %g; the first value that is not finite: %s",
                    *loss, name != NULL ? name : "unknown");
    }
    int segments = backward ? yoke_replica_flat(c->replica)->bucket_count : 0;
    for (int s = 0; s < segments; s++)
        TRY(yoke_replica_backward_segment(c->replica, s, &c->step));
    return YOKE_OK;
}

/* A tensor and its two numbers. */

typedef struct subject {
    const char *name;
    int tensor, input; /* one of them is NONE */
    size_t count;
    float *values, *gradient, *direction, *moved; /* [count] */
} subject;

static yoke_status read_subject(check *c, const subject *s) {
    const yoke_replica_memory *memory = yoke_replica_memory_of(c->replica);
    if (s->tensor != YOKE_NONE) {
        TRY(yoke_replica_read(c->replica, s->tensor, false, s->values));
        return yoke_replica_read(c->replica, s->tensor, true, s->gradient);
    }
    const float *gradient = NULL;
    TRY(yoke_replica_input_gradients(c->replica, s->input, &gradient));
    memcpy(s->values, memory->inputs[s->input], s->count * sizeof(float));
    memcpy(s->gradient, gradient, s->count * sizeof(float));
    return YOKE_OK;
}

static yoke_status write_subject(check *c, const subject *s, const float *values) {
    if (s->tensor != YOKE_NONE) return yoke_replica_write(c->replica, s->tensor, false, values);
    memcpy(yoke_replica_memory_of(c->replica)->inputs[s->input], values, s->count * sizeof(float));
    return YOKE_OK;
}

static yoke_status loss_beside(check *c, const subject *s, double step, double *loss) {
    for (size_t i = 0; i < s->count; i++)
        s->moved[i] = (float)((double)s->values[i] + step * (double)s->direction[i]);
    TRY(write_subject(c, s, s->moved));
    return run(c, false, loss);
}

/* The slope that the gradient gives along the direction. */
static double choose_direction(const check *c, const subject *s) {
    double squares = 0, slope = 0;
    for (size_t i = 0; i < s->count; i++)
        squares += (double)s->values[i] * (double)s->values[i];
    double size = squares > 0 ? sqrt(squares / (double)s->count) : 1;
    yoke_random_uniform(s->direction, s->count, 0.5 * size, 1.5 * size, c->options.seed,
                        YOKE_RANDOM_PROBE, 1000 + (uint64_t)(s->tensor + s->input));
    for (size_t i = 0; i < s->count; i++) {
        if (s->gradient[i] < 0 || (s->gradient[i] == 0 && i % 2 == 1)) s->direction[i] *= -1;
        slope += (double)s->gradient[i] * (double)s->direction[i];
    }
    return slope;
}

/* Keeps the slope in *found if it is nearer to backward's. Slopes of less than `least` differ by
 * the loss's rounding. */
static void offer(yoke_gradient_check *found, double slope, double least) {
    double larger = fmax(fabs(slope), fabs(found->backward));
    double error = fabs(slope - found->backward) / fmax(larger, least);
    if (!(error < found->error)) return;
    found->error = error;
    found->difference = slope;
}

static yoke_status compare(check *c, const subject *s, yoke_gradient_check *found) {
    double loss, above, below;
    TRY(run(c, true, &loss));
    TRY(read_subject(c, s));
    double least = 4 / TOLERANCE * (double)FLT_EPSILON * fabs(loss) / steps[0];
    found->backward = choose_direction(c, s);
    found->error = INFINITY;
    if (!isfinite(found->backward))
        return FAIL(YOKE_ERROR_NUMERIC, "the gradient of %s is not finite", s->name);
    double scale =
        fabs(loss) / fmax(fabs(loss), fabs(found->backward)); /* steep: it bends sooner */
    for (int i = 0; i < STEPS && found->error > c->options.tolerance; i++) {
        double step = scale * steps[i];
        TRY(loss_beside(c, s, step, &above));
        TRY(loss_beside(c, s, -step, &below));
        offer(found, (above - below) / (2 * step), least);
        if (i < STEPS - 1) continue;
        offer(found, (above - loss) / step, least); /* a kink on the other side */
        offer(found, (loss - below) / step, least);
    }
    return write_subject(c, s, s->values);
}

static yoke_status check_subject(check *c, subject *s) {
    yoke_gradient_check found = {.struct_size = sizeof found, .tensor = s->name};
    s->values = yoke_malloc(4 * s->count * sizeof *s->values);
    if (s->values == NULL) return FAIL_MEMORY(4 * s->count * sizeof *s->values, "a tensor");
    s->gradient = s->values + s->count;
    s->direction = s->gradient + s->count;
    s->moved = s->direction + s->count;
    yoke_status status = compare(c, s, &found);
    yoke_free(s->values);
    TRY(status);
    found.checked = c->worst.checked + 1;
    if (c->worst.checked == 0 || found.error > c->worst.error) c->worst = found;
    c->worst.checked = found.checked;
    return YOKE_OK;
}

static yoke_status check_all(check *c) {
    const yoke_model *model = c->model;
    for (int i = 0; i < model->tensor_count; i++)
        TRY(stir(c, i));
    TRY(draw_batch(c));
    for (int i = 0; i < model->tensor_count; i++) {
        const yoke_tensor *tensor = &model->tensors[i];
        subject s = {.name = tensor->name, .tensor = i, .input = YOKE_NONE, .count = tensor->count};
        if (tensor->trainable) TRY(check_subject(c, &s));
    }
    for (int k = 0; k < model->input_count && !c->reads_tokens; k++) {
        subject s = {.name = model->inputs[k].name,
                     .tensor = YOKE_NONE,
                     .input = k,
                     .count = (size_t)c->options.rows * yoke_model_input_elements(model, k)};
        TRY(check_subject(c, &s));
    }
    return YOKE_OK;
}

static yoke_status judge(const check *c) {
    const yoke_gradient_check *worst = &c->worst;
    if (worst->error <= c->options.tolerance) return YOKE_OK;
    return FAIL(YOKE_ERROR_NUMERIC,
                "%s: along one direction backward's slope is %.6g, differences of the loss give "
                "%.6g, %.2g apart, allowed %g; correct the backward that writes this gradient or "
                "that of a layer behind it, or try another seed if a kink is near",
                worst->tensor, worst->backward, worst->difference, worst->error,
                c->options.tolerance);
}

/* The call. */

static yoke_status load(check *c, const yoke_gradient_check_options *given) {
    TRY(yoke_options_load(&c->options, sizeof c->options, given, "yoke_gradient_check_options"));
    if (c->options.rows == 0) c->options.rows = ROWS;
    if (c->options.tolerance == 0) c->options.tolerance = TOLERANCE;
    if (c->options.rows < 0)
        return FAIL(YOKE_ERROR_ARGUMENT, "rows is %d, must be at least 1", c->options.rows);
    if (!(c->options.tolerance > 0))
        return FAIL(YOKE_ERROR_ARGUMENT, "tolerance is %g, must be above 0", c->options.tolerance);
    return YOKE_OK;
}

static yoke_status run_check(check *c, const yoke_model *model) {
    TRY(yoke_guarded_model_build(&c->guarded, model));
    c->model = &c->guarded.model;
    TRY(open_device(c));
    TRY(make_replica(c));
    TRY(check_all(c));
    return judge(c);
}

static void release(check *c) {
    yoke_replica_destroy(c->replica);
    yoke_algorithms_destroy(c->algorithms);
    if (c->entered) {
        yoke_device_release_signals(c->device);
        yoke_device_leave(c->device, &c->scope);
    }
    yoke_devices_close(c->devices);
    yoke_guarded_model_release(&c->guarded);
}

yoke_status yoke_model_check_gradients(const yoke_model *model,
                                       const yoke_gradient_check_options *options,
                                       yoke_gradient_check *report) {
    TRY(yoke_pointer_check(model, "model"));
    if (!model->finished)
        return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' is not finished", model->name);
    check c = {.worst = {.struct_size = sizeof c.worst}};
    TRY(load(&c, options));
    if (report != NULL)
        TRY(yoke_options_store(report, &c.worst, sizeof c.worst, "yoke_gradient_check"));
    yoke_status status = run_check(&c, model);
    yoke_error error = yoke_error_take(status);
    release(&c);
    if (report != NULL) yoke_options_store(report, &c.worst, sizeof c.worst, "yoke_gradient_check");
    return status == YOKE_OK ? YOKE_OK : yoke_error_restore(&error);
}
