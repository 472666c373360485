/* SPDX-License-Identifier: Apache-2.0 */
/* A hand-written oneDNN training loop without an engine around it: the ceiling `versus_loop` races
 * Yoke against. It knows nothing of Yoke. It is a bench's tool: a failing oneDNN call ends the
 * program with the call's text. */
#ifndef BENCH_ONEDNN_LOOP_H
#define BENCH_ONEDNN_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct onednn_loop onednn_loop;

typedef struct onednn_loop_options {
    const char *network; /* "resnet18-cifar" or "resnet50": 3x32x32 images, 10 classes */
    int rows;            /* per device */
    int devices;         /* 1 or 2 host threads, bound to `threads` cores each */
    int threads;         /* OpenMP threads of a device */
    bool bfloat16;       /* compute in bfloat16, weights and gradients stay float32 */
    bool direct;         /* no Winograd */
    float learning_rate, momentum, weight_decay;
} onednn_loop_options;

/* NULL when the network's name is unknown. Weights start from a fixed seed. */
onednn_loop *onednn_loop_create(const onednn_loop_options *options);
void onednn_loop_destroy(onednn_loop *loop);

/* The batch of every later step, copied to the devices in each: inputs [rows * devices, 3, 32, 32],
 * labels [rows * devices]. Borrowed. */
void onednn_loop_batch(onednn_loop *loop, const float *inputs, const int32_t *labels);

/* The tensors by their torchvision names, to start from given weights. False past the end. */
bool onednn_loop_tensor(const onednn_loop *loop, int index, const char **name, size_t *count);
/* PyTorch's layout; sets every device. */
void onednn_loop_write(onednn_loop *loop, int index, const float *values);

/* Runs `steps` updates; the mean loss over the whole batch of the last one. */
double onednn_loop_run(onednn_loop *loop, int steps);

#endif
