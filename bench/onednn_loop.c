/* SPDX-License-Identifier: Apache-2.0 */
/* Host threads posing as devices, the step, and the exchange between them. */
#include "onednn_loop.h"

#include <linux/futex.h>
#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "onednn_loop_parts.h"

/* Spins shortly, then sleeps. */
typedef struct barrier {
    atomic_uint phase, arrived;
    unsigned count;
} barrier;

struct onednn_loop {
    onednn_loop_options options;
    loop_device devices[2];
    pthread_t threads[2];
    int thread_count;
    barrier peers, start, done; /* peers: devices only; the others: and the caller */
    int steps;                  /* of a run; 0: leave */
    const float *inputs;
    const int32_t *labels;
    loop_update update;
};

typedef struct worker {
    onednn_loop *loop;
    int index;
} worker;

static void barrier_wait(barrier *b) {
    unsigned phase = atomic_load(&b->phase);
    if (atomic_fetch_add(&b->arrived, 1) + 1 == b->count) {
        atomic_store(&b->arrived, 0);
        atomic_fetch_add(&b->phase, 1);
        syscall(SYS_futex, &b->phase, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
        return;
    }
    for (int i = 0; i < 4000; i++) {
        if (atomic_load_explicit(&b->phase, memory_order_acquire) != phase) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    while (atomic_load(&b->phase) == phase)
        syscall(SYS_futex, &b->phase, FUTEX_WAIT_PRIVATE, phase, NULL, NULL, 0);
}

static void bind_to_cores(int first, int count) {
    cpu_set_t allowed, own;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    CPU_ZERO(&own);
    int seen = 0;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed)) continue;
        if (seen >= first && seen < first + count) CPU_SET(core, &own);
        seen++;
    }
    if (CPU_COUNT(&own) == count) (void)sched_setaffinity(0, sizeof own, &own);
}

/* Filters are measured first: their layouts decide the flat buffer, which every primitive is bound
 * to. */
static void lay_out(loop_device *device) {
    device->values[0].data = loop_allocate(device, device->values[0].bytes);
    for (int i = 0; i < device->op_count; i++) {
        loop_op *op = &device->ops[i];
        loop_value *out = &device->values[op->output];
        if (op->kind == LOOP_CONV) loop_conv_choose(device, op);
        if (op->kind == LOOP_ADD) /* in place: nobody else reads the left side */
            out->data = device->values[op->input].data;
        else if (op->kind != LOOP_HEAD)
            out->data = loop_allocate(device, out->bytes);
    }
    size_t offset = 0;
    for (int i = 0; i < device->parameter_count; i++) {
        device->parameters[i].offset = offset;
        offset += (device->parameters[i].bytes + 63) / 64 * 64;
    }
    device->flat_elements = offset / sizeof(float);
    device->weights = loop_allocate(device, offset);
    device->gradients = loop_allocate(device, offset);
}

/* The smallest free buffer that holds `bytes`, or a new one. */
static int acquire(loop_device *device, size_t bytes) {
    int best = -1;
    for (int i = 0; i < device->buffer_count; i++) {
        const loop_buffer *buffer = &device->buffers[i];
        if (buffer->users > 0 || buffer->bytes < bytes) continue;
        if (best < 0 || buffer->bytes < device->buffers[best].bytes) best = i;
    }
    if (best < 0) {
        best = device->buffer_count++;
        device->buffers[best].data = loop_allocate(device, bytes);
        device->buffers[best].bytes = bytes;
    }
    return best;
}

static void give(loop_device *device, int value, int buffer) {
    loop_value *to = &device->values[value];
    to->gradients[to->gradient_count++] = buffer;
    device->buffers[buffer].users++;
}

static void plan_backward(loop_device *device, loop_op *op) {
    loop_value *out = &device->values[op->output];
    if (op->kind == LOOP_HEAD) {
        give(device, op->input, acquire(device, out->bytes));
        return;
    }
    void *gradient = device->buffers[out->gradients[0]].data;
    if (op->kind == LOOP_ADD) {
        give(device, op->input, out->gradients[0]);
        give(device, op->other, out->gradients[0]);
    } else {
        int buffer = op->input == 0 ? -1 : acquire(device, device->values[op->input].bytes);
        void *to = buffer < 0 ? NULL : device->buffers[buffer].data;
        if (op->kind == LOOP_CONV) loop_conv_build_backward(device, op, gradient, to);
        if (op->kind == LOOP_NORM) loop_norm_build_backward(device, op, gradient, to);
        if (op->kind == LOOP_MAX_POOL) loop_pool_build_backward(device, op, gradient, to);
        if (buffer >= 0) give(device, op->input, buffer);
    }
    for (int i = 0; i < out->gradient_count; i++)
        device->buffers[out->gradients[i]].users--;
}

static void build(loop_device *device) {
    loop_device_create(device);
    loop_network_build(device, device->options->network);
    lay_out(device);
    loop_value *value = &device->values[0];
    const cpu_desc *plain = NULL;
    MUST(cpu_desc_by_strides(&plain, &device->descs, 4, value->desc->dims, dnnl_f32, NULL));
    device->input = loop_allocate(device, plain->bytes);
    device->labels = loop_allocate(device, (size_t)device->options->rows * sizeof(int32_t));
    loop_reorder(device, &device->upload, plain, device->input, value->desc, value->data);
    for (int i = 0; i < device->op_count; i++) {
        loop_op *op = &device->ops[i];
        if (op->kind == LOOP_CONV) loop_conv_build(device, op);
        if (op->kind == LOOP_NORM) loop_norm_build(device, op);
        if (op->kind == LOOP_MAX_POOL) loop_pool_build(device, op);
        if (op->kind == LOOP_HEAD) {
            size_t rows = (size_t)device->options->rows;
            size_t channels = (size_t)device->values[op->input].channels;
            device->pooled = loop_allocate(device, rows * channels * sizeof(float));
            device->pooled_gradient = loop_allocate(device, rows * channels * sizeof(float));
            device->logits = loop_allocate(device, rows * LOOP_CLASSES * sizeof(float));
        }
    }
    for (int i = device->op_count - 1; i >= 0; i--)
        plan_backward(device, &device->ops[i]);
    loop_bind_scratch(device);
}

static void forward(loop_device *device, int whole_rows) {
    for (int i = 0; i < device->op_count; i++) {
        const loop_op *op = &device->ops[i];
        const loop_value *out = &device->values[op->output];
        loop_execute(device, &op->forward_reorder);
        loop_execute(device, &op->forward);
        if (op->kind == LOOP_NORM) loop_running_statistics(device, op);
        if (op->kind == LOOP_ADD)
            loop_add_relu(out->data, device->values[op->other].data, out->elements,
                          device->options->bfloat16);
        if (op->kind == LOOP_HEAD) loop_head(device, op, whole_rows);
    }
}

static void backward(loop_device *device) {
    bool narrow = device->options->bfloat16;
    for (int i = device->op_count - 1; i >= 0; i--) {
        const loop_op *op = &device->ops[i];
        const loop_value *out = &device->values[op->output];
        if (op->kind == LOOP_HEAD) continue;
        void *gradient = device->buffers[out->gradients[0]].data;
        const void *extra =
            out->gradient_count == 2 ? device->buffers[out->gradients[1]].data : NULL;
        if (op->kind == LOOP_ADD)
            loop_relu_gradient(gradient, extra, out->data, out->elements, narrow);
        else if (extra)
            loop_accumulate(gradient, extra, out->elements, narrow);
        loop_execute(device, &op->backward_weights);
        loop_execute(device, &op->backward_reorder);
        loop_execute(device, &op->backward);
    }
}

static void step(onednn_loop *loop, int index) {
    loop_device *device = &loop->devices[index];
    size_t rows = (size_t)loop->options.rows, row = 3 * LOOP_IMAGE * LOOP_IMAGE;
    size_t first = (size_t)index * rows, count = (size_t)loop->options.devices;
    memcpy(device->input, loop->inputs + first * row, rows * row * sizeof(float));
    memcpy(device->labels, loop->labels + first, rows * sizeof(int32_t));
    loop_execute(device, &device->upload);
    forward(device, (int)(rows * count));
    backward(device);
    barrier_wait(&loop->peers);
    size_t part = (device->flat_elements / count + 15) / 16 * 16;
    size_t begin = (size_t)index * part, end = begin + part;
    if ((size_t)index + 1 == count) end = device->flat_elements;
    loop_exchange(&loop->update, begin, end);
    barrier_wait(&loop->peers);
}

static void *work(void *argument) {
    worker self = *(worker *)argument;
    free(argument);
    onednn_loop *loop = self.loop;
    bind_to_cores(self.index * loop->options.threads, loop->options.threads);
    omp_set_num_threads(loop->options.threads);
    for (int turn = 0; turn < loop->options.devices; turn++) {
        if (turn == self.index) build(&loop->devices[turn]);
        barrier_wait(&loop->peers); /* the root has measured before the others build */
    }
    barrier_wait(&loop->done);
    for (;;) {
        barrier_wait(&loop->start);
        if (loop->steps == 0) return NULL;
        for (int i = 0; i < loop->steps; i++)
            step(loop, self.index);
        barrier_wait(&loop->done);
    }
}

/* Uniform in [-bound, bound) with bound = sqrt(3 * 2 / fan in): Kaiming's std. */
static void draw(float *values, size_t count, size_t fan_in, uint32_t *state) {
    float bound = sqrtf(6.0f / (float)fan_in);
    for (size_t i = 0; i < count; i++) {
        *state = *state * 1664525u + 1013904223u;
        values[i] = bound * ((float)(*state >> 8) * 0x1p-23f - 1.0f);
    }
}

static void initialise(onednn_loop *loop) {
    uint32_t state = 1;
    const loop_device *root = &loop->devices[0];
    for (int i = 0; i < root->parameter_count; i++) {
        const loop_parameter *parameter = &root->parameters[i];
        size_t count = parameter->plain->bytes / sizeof(float);
        float *values = malloc(count * sizeof *values);
        if (!values) exit(71);
        for (size_t k = 0; k < count; k++)
            values[k] = parameter->initial;
        if (parameter->plain->ndims > 1)
            draw(values, count, count / (size_t)parameter->plain->dims[0], &state);
        onednn_loop_write(loop, i, values);
        free(values);
    }
}

static bool known_network(const char *name) {
    return strcmp(name, "resnet18-cifar") == 0 || strcmp(name, "resnet50") == 0;
}

static void start_workers(onednn_loop *loop) {
    int devices = loop->options.devices;
    loop->peers.count = (unsigned)devices;
    loop->start.count = loop->done.count = (unsigned)devices + 1;
    for (int i = 0; i < devices; i++) {
        loop->devices[i].options = &loop->options;
        loop->devices[i].root = i == 0 ? NULL : &loop->devices[0];
        worker *argument = malloc(sizeof *argument);
        if (!argument) exit(71);
        *argument = (worker){loop, i};
        if (pthread_create(&loop->threads[i], NULL, work, argument) != 0) exit(71);
        loop->thread_count++;
    }
    barrier_wait(&loop->done);
}

onednn_loop *onednn_loop_create(const onednn_loop_options *options) {
    if (!known_network(options->network)) return NULL;
    onednn_loop *loop = calloc(1, sizeof *loop);
    if (!loop) exit(71);
    loop->options = *options;
    start_workers(loop);
    loop_device *root = &loop->devices[0];
    loop->update = (loop_update){.devices = options->devices,
                                 .learning_rate = options->learning_rate,
                                 .momentum = options->momentum,
                                 .weight_decay = options->weight_decay};
    loop->update.velocity = loop_allocate(root, root->flat_elements * sizeof(float));
    for (int i = 0; i < options->devices; i++) {
        loop->update.weights[i] = loop->devices[i].weights;
        loop->update.gradients[i] = loop->devices[i].gradients;
    }
    initialise(loop);
    return loop;
}

void onednn_loop_destroy(onednn_loop *loop) {
    if (!loop) return;
    loop->steps = 0;
    barrier_wait(&loop->start);
    for (int i = 0; i < loop->thread_count; i++)
        pthread_join(loop->threads[i], NULL);
    for (int i = 0; i < loop->options.devices; i++)
        loop_device_destroy(&loop->devices[i]);
    free(loop);
}

void onednn_loop_batch(onednn_loop *loop, const float *inputs, const int32_t *labels) {
    loop->inputs = inputs;
    loop->labels = labels;
}

bool onednn_loop_tensor(const onednn_loop *loop, int index, const char **name, size_t *count) {
    const loop_device *root = &loop->devices[0];
    if (index >= root->parameter_count) return false;
    *name = root->parameters[index].name;
    *count = root->parameters[index].plain->bytes / sizeof(float);
    return true;
}

void onednn_loop_write(onednn_loop *loop, int index, const float *values) {
    for (int i = 0; i < loop->options.devices; i++) {
        loop_device *device = &loop->devices[i];
        const loop_parameter *parameter = &device->parameters[index];
        loop_call call = {0};
        loop_reorder(device, &call, parameter->plain, (void *)(uintptr_t)values, parameter->desc,
                     (char *)device->weights + parameter->offset);
        loop_execute(device, &call);
        loop_call_destroy(&call);
    }
}

double onednn_loop_run(onednn_loop *loop, int steps) {
    if (steps < 1) return NAN;
    loop->steps = steps;
    barrier_wait(&loop->start);
    barrier_wait(&loop->done);
    double loss = 0;
    for (int i = 0; i < loop->options.devices; i++)
        loss += loop->devices[i].loss;
    return loss / (double)(loop->options.rows * loop->options.devices);
}
