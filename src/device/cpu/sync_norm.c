/* SPDX-License-Identifier: Apache-2.0 */
/* Each participant reduces its rows to count, mean and squared deviations per channel. All
 * participants gather these and combine them alike (norm_group.c). Backward gathers the two sums
 * over rows in which the gradient of the input depends on the other participants. */
#include "device/cpu/sync_norm.h"

#include <math.h>
#include <string.h>

#include "device/cpu/clones.h"

/* What correct_row needs of a plan. */
typedef struct correction {
    cpu_row_view view;
    const void *input;
    void *gradient;
    const float *mean, *slope, *offset; /* [padded channels] */
} correction;

static inline void correct_row(const correction *by, size_t row, bool half) {
    const cpu_row_view *view = &by->view;
    bool planes = view->width == 1 && view->pixel_stride == 1;
    size_t outer = planes ? 1 : view->pixels, inner = planes ? view->pixels : view->width;
    for (size_t group = 0; group < view->groups; group++) {
        for (size_t pixel = 0; pixel < outer; pixel++) {
            size_t at = row + group * view->group_stride + pixel * view->pixel_stride;
#pragma omp simd
            for (size_t i = 0; i < inner; i++) {
                size_t c = planes ? group : group * view->width + i;
                float x = cpu_load(by->input, at + i, half) - by->mean[c];
                float gradient = cpu_load(by->gradient, at + i, half);
                cpu_store(by->gradient, at + i, half,
                          gradient - (by->offset[c] + by->slope[c] * x));
            }
        }
    }
}

CPU_CLONES static void correct_row_float(const correction *by, size_t row) {
    correct_row(by, row, false);
}

CPU_CLONES static void correct_row_half(const correction *by, size_t row) {
    correct_row(by, row, true);
}

static bool is_parallel(const cpu_sync_norm *sync) {
    return cpu_is_parallel(sync->threads, sync->rows * sync->geometry.row_stride);
}

/* Forward. */

/* message = { count, means, squared deviations from them }. */
static void describe_rows(const cpu_sync_norm *sync) {
    double *means = sync->message + 1;
    sync->message[0] = (double)sync->rows * (double)sync->geometry.pixels;
    cpu_channel_statistics_run(&sync->statistics, means, means + sync->geometry.channels);
}

yoke_status cpu_sync_norm_statistics(cpu_sync_norm *sync, const yoke_plan_step *step) {
    yoke_norm_gathered gathered;
    if (!step->idle) describe_rows(sync);
    TRY(yoke_norm_gather(sync->group, step->alone, step->idle, sync->message,
                         1 + 2 * sync->geometry.channels, &gathered));
    TRY(yoke_norm_total(&gathered, step->alone, &sync->total));
    if (sync->total > 0)
        yoke_norm_combine(&gathered, sync->total, sync->operands.mean, sync->operands.variance);
    return YOKE_OK;
}

/* Backward. With y = scale * (x - mean) / std + shift, normal = (x - mean) / std and
 * means over all rows, dx = scale / std * (dy - mean(dy) - normal * mean(dy * normal)). The
 * first term is there already. */

static void set_coefficients(const cpu_sync_norm *sync, const yoke_norm_gathered *gathered) {
    const cpu_sync_operands *operands = &sync->operands;
    size_t channels = sync->geometry.channels;
    for (size_t c = 0; c < channels; c++) {
        double shift = yoke_norm_sum(gathered, c), scale = yoke_norm_sum(gathered, channels + c);
        double inverse = 1 / sqrt((double)operands->variance[c] + sync->epsilon);
        double factor = (double)operands->scale[c] * inverse / sync->total;
        sync->offset[c] = (float)(factor * shift);
        sync->slope[c] = (float)(factor * inverse * scale);
    }
    for (size_t c = channels; c < sync->geometry.padded_channels; c++)
        sync->offset[c] = sync->slope[c] = 0; /* padding stays 0 */
}

static void correct_rows(const cpu_sync_norm *sync) {
    const correction by = {.view = cpu_view_row(&sync->geometry),
                           .input = sync->operands.input,
                           .gradient = sync->operands.input_gradient,
                           .mean = sync->mean,
                           .slope = sync->slope,
                           .offset = sync->offset};
    size_t channels = sync->geometry.channels, padded = sync->geometry.padded_channels;
    memcpy(sync->mean, sync->operands.mean, channels * sizeof *sync->mean);
    memset(sync->mean + channels, 0, (padded - channels) * sizeof *sync->mean);
#pragma omp parallel for num_threads(sync->threads) if (is_parallel(sync))
    for (size_t row = 0; row < sync->rows; row++) {
        if (sync->half)
            correct_row_half(&by, row * sync->geometry.row_stride);
        else
            correct_row_float(&by, row * sync->geometry.row_stride);
    }
}

yoke_status cpu_sync_norm_correct(cpu_sync_norm *sync, const yoke_plan_step *step) {
    yoke_norm_gathered gathered;
    size_t channels = sync->geometry.channels;
    for (size_t c = 0; c < channels && !step->idle; c++) {
        sync->message[c] = (double)sync->operands.shift_gradient[c];
        sync->message[channels + c] = (double)sync->operands.scale_gradient[c];
    }
    TRY(yoke_norm_gather(sync->group, step->alone, step->idle, sync->message, 2 * channels,
                         &gathered));
    if (step->idle || sync->operands.input_gradient == NULL) return YOKE_OK;
    set_coefficients(sync, &gathered);
    correct_rows(sync);
    return YOKE_OK;
}

/* Planning. */

yoke_status cpu_sync_norm_plan(cpu_sync_norm *sync, const yoke_plan_request *request, int threads,
                               size_t *scratch_bytes) {
    TRY(cpu_channel_statistics_plan(&sync->statistics, request, threads, scratch_bytes));
    sync->geometry = sync->statistics.geometry;
    sync->rows = sync->statistics.rows;
    sync->half = sync->statistics.half;
    sync->threads = threads;
    sync->epsilon = request->operation->epsilon;
    sync->scratch_offset = cpu_align(*scratch_bytes, CPU_LINE);
    size_t channels = sync->geometry.padded_channels,
           vector = cpu_align(channels * sizeof(float), CPU_LINE);
    *scratch_bytes = sync->scratch_offset +
                     cpu_align((1 + 2 * channels) * sizeof(double), CPU_LINE) + 3 * vector;
    return YOKE_OK;
}

void cpu_sync_norm_bind(cpu_sync_norm *sync, const cpu_sync_operands *operands, void *scratch) {
    size_t channels = sync->geometry.padded_channels,
           vector = cpu_align(channels * sizeof(float), CPU_LINE);
    char *at = (char *)scratch + sync->scratch_offset;
    cpu_channel_statistics_bind(&sync->statistics, operands->input, scratch);
    sync->operands = *operands;
    sync->message = (double *)(void *)at;
    at += cpu_align((1 + 2 * channels) * sizeof(double), CPU_LINE);
    sync->mean = (float *)(void *)at;
    sync->slope = (float *)(void *)(at + vector);
    sync->offset = (float *)(void *)(at + 2 * vector);
}
