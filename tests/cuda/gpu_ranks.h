/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks with a GPU each, as threads of one process, and buffers on their GPUs. */
#ifndef TESTS_GPU_RANKS_H
#define TESTS_GPU_RANKS_H

#include "support/collective_grid.h"
#include "support/devices.h"
#include "support/process_ranks.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        yoke_status expect_status_ = (call);                                                       \
        if (expect_status_ != YOKE_OK)                                                             \
            fail_msg("%s: %s: %s", #call, yoke_status_name(expect_status_), yoke_last_error());    \
    } while (0)

enum { GPU_RANKS = 8 };

typedef struct gpu_ranks {
    yoke_devices *devices[GPU_RANKS];
    int world;
} gpu_ranks;

static inline int most_gpu_ranks(void) {
    return devices_gpus() < GPU_RANKS ? devices_gpus() : GPU_RANKS;
}

/* Rank r has GPU r. */
static inline void open_gpus(gpu_ranks *ranks, int world) {
    ranks->world = world;
    for (int rank = 0; rank < world; rank++) {
        char list[16];
        snprintf(list, sizeof list, "cuda:%d", rank);
        yoke_devices_options options = {.struct_size = sizeof options, .list = list};
        EXPECT_OK(yoke_devices_open(&ranks->devices[rank], &options));
    }
}

static inline void close_gpus(gpu_ranks *ranks) {
    for (int rank = 0; rank < ranks->world; rank++)
        yoke_devices_close(ranks->devices[rank]);
}

static inline yoke_device *gpu_of(const script *play, int rank) {
    return yoke_devices_at(play->devices[rank], 0);
}

/* A scene on GPUs of its own; 0: as many ranks' outcomes as the script says. */
static inline outcome *play_gpus(script play) {
    gpu_ranks ranks;
    open_gpus(&ranks, play.world);
    play.devices = ranks.devices;
    outcome *outcomes = play_threads(&play);
    close_gpus(&ranks);
    return outcomes;
}

static inline void play_well(script play) {
    outcome *outcomes = play_gpus(play);
    expect_all_well(outcomes, play.world);
    free(outcomes);
}

/* Memory of a GPU for the grid. */

static inline yoke_status make_on_gpu(const grid_memory *memory, size_t bytes, void **buffer) {
    return yoke_device_allocate(memory->context, bytes, "a test", buffer);
}

static inline void release_on_gpu(const grid_memory *memory, void *buffer) {
    yoke_device_free(memory->context, buffer);
}

static inline yoke_status put_on_gpu(const grid_memory *memory, void *to, const void *from,
                                     size_t bytes) {
    return yoke_device_upload(memory->context, YOKE_STREAM_COMMUNICATION, to, from, bytes);
}

static inline yoke_status take_from_gpu(const grid_memory *memory, void *to, const void *from,
                                        size_t bytes) {
    return yoke_device_download(memory->context, YOKE_STREAM_COMMUNICATION, to, from, bytes);
}

static inline grid_memory memory_of(yoke_device *device) {
    return (grid_memory){.any_order = true,
                         .make = make_on_gpu,
                         .release = release_on_gpu,
                         .put = put_on_gpu,
                         .take = take_from_gpu,
                         .context = device};
}

#endif
