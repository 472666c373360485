/* SPDX-License-Identifier: Apache-2.0 */
/* Peer access and copies between GPUs. Some hardware and virtual machines report peer access but
 * copy wrong data, so a test copies a pattern between each pair of GPUs; a pair that fails is
 * copied through host memory from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define PROBE_WORDS ((size_t)16384)
#define PROBE_BYTES (PROBE_WORDS * sizeof(uint32_t))

/* Copies from one GPU to the device that owns this struct, through a chunk of pinned memory for
 * each of the device's streams. */
typedef struct cuda_staging {
    cuda_device *from;
    void *host[YOKE_STREAMS];
    cudaEvent_t empty[YOKE_STREAMS], full[YOKE_STREAMS]; /* recorded by the owner, and by `from` */
    struct cuda_staging *next;
} cuda_staging;

/* Detours. */

static yoke_status open_staging(cuda_device *to, cuda_device *from) {
    cuda_staging *staging = yoke_calloc(1, sizeof *staging);
    if (staging == NULL) return FAIL_MEMORY(sizeof *staging, "copies through host memory");
    staging->from = from;
    staging->next = to->stagings;
    to->stagings = staging; /* closing the device also frees a half-built one */
    to->reach &= ~((uint64_t)1 << from->ordinal);
    for (int i = 0; i < YOKE_STREAMS; i++) {
        TRY(cuda_use(&staging->from->base));
        TRY_CUDA(to, cudaEventCreateWithFlags(&staging->full[i], cudaEventDisableTiming));
        TRY(cuda_use(&to->base));
        TRY_CUDA(to, cudaEventCreateWithFlags(&staging->empty[i], cudaEventDisableTiming));
        TRY_CUDA(to, cudaHostAlloc(&staging->host[i], CHUNK_BYTES, cudaHostAllocPortable));
    }
    return YOKE_OK;
}

void cuda_close_staging(cuda_device *device) {
    while (device->stagings != NULL) {
        cuda_staging *staging = device->stagings;
        device->stagings = staging->next;
        for (int i = 0; i < YOKE_STREAMS; i++) {
            cudaStreamSynchronize(device->streams[i]);
            if (staging->host[i] != NULL) cudaFreeHost(staging->host[i]);
            if (staging->empty[i] != NULL) cudaEventDestroy(staging->empty[i]);
            if (staging->full[i] != NULL) cudaEventDestroy(staging->full[i]);
        }
        yoke_free(staging);
    }
}

static const cuda_staging *find_staging(const cuda_device *to, const cuda_device *from) {
    const cuda_staging *staging = to->stagings;
    while (staging != NULL && staging->from->ordinal != from->ordinal)
        staging = staging->next;
    return staging;
}

static yoke_status fill_chunk(const cuda_staging *staging, yoke_stream stream, const void *from,
                              size_t bytes) {
    cuda_device *source = staging->from;
    cudaStream_t pushing = source->streams[YOKE_STREAM_COPY];
    TRY(cuda_use(&source->base));
    TRY_CUDA(source, cudaStreamWaitEvent(pushing, staging->empty[stream], 0));
    TRY_CUDA(source,
             cudaMemcpyAsync(staging->host[stream], from, bytes, cudaMemcpyDeviceToHost, pushing));
    TRY_CUDA(source, cudaEventRecord(staging->full[stream], pushing));
    return YOKE_OK;
}

/* Chunk by chunk: the target's stream records that the chunk is empty and `from` is ready, the
 * source fills the chunk, the target reads it. */
static yoke_status copy_staged(const cuda_staging *staging, cuda_device *to, yoke_stream stream,
                               void *target, const void *from, size_t bytes) {
    cudaStream_t pulling = to->streams[stream];
    for (size_t done = 0; done < bytes; done += CHUNK_BYTES) {
        size_t part = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        TRY(cuda_use(&to->base));
        TRY_CUDA(to, cudaEventRecord(staging->empty[stream], pulling));
        TRY(fill_chunk(staging, stream, (const char *)from + done, part));
        TRY(cuda_use(&to->base));
        TRY_CUDA(to, cudaStreamWaitEvent(pulling, staging->full[stream], 0));
        TRY_CUDA(to, cudaMemcpyAsync((char *)target + done, staging->host[stream], part,
                                     cudaMemcpyHostToDevice, pulling));
    }
    return YOKE_OK;
}

/* Copies. */

yoke_peer_path cuda_path(const yoke_device *device, const yoke_device *other) {
    const cuda_device *own = (const cuda_device *)device, *peer = (const cuda_device *)other;
    if (own->ordinal == peer->ordinal) return YOKE_PEER_SAME;
    return own->reach >> peer->ordinal & 1 ? YOKE_PEER_DIRECT : YOKE_PEER_HOST;
}

yoke_status cuda_copy(yoke_device *to_device, yoke_stream stream, void *to,
                      yoke_device *from_device, const void *from, size_t bytes) {
    cuda_device *target = cuda_of(to_device), *source = cuda_of(from_device);
    TRY(cuda_check_poison(target)); /* copies go to any device's stream */
    const cuda_staging *staging = find_staging(target, source);
    if (staging != NULL) return copy_staged(staging, target, stream, to, from, bytes);
    if (target->ordinal == source->ordinal)
        TRY_CUDA(target, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice,
                                         target->streams[stream]));
    else
        TRY_CUDA(target, cudaMemcpyPeerAsync(to, target->ordinal, from, source->ordinal, bytes,
                                             target->streams[stream]));
    return YOKE_OK;
}

/* Access. */

static yoke_status open_access(cuda_device *device, const cuda_device *peer) {
    int possible = 0;
    TRY(cuda_use(&device->base));
    TRY_CUDA(device, cudaDeviceCanAccessPeer(&possible, device->ordinal, peer->ordinal));
    if (!possible) return YOKE_OK;
    cudaError_t error = cudaDeviceEnablePeerAccess(peer->ordinal, 0);
    bool already = error == cudaErrorPeerAccessAlreadyEnabled,
         full = error == cudaErrorTooManyPeers;
    if (error != cudaSuccess && !already && !full)
        return cuda_failed(device, error, "cudaDeviceEnablePeerAccess");
    cudaGetLastError();
    if (!full) device->reach |= (uint64_t)1 << peer->ordinal;
    return YOKE_OK;
}

/* The test. memory[k]: device k's pattern, then space for another's. */

typedef struct peer_test {
    yoke_device *const *devices;
    int count;
    uint32_t *memory[YOKE_DEVICES_LIMIT];
    uint32_t *host; /* what arrived */
} peer_test;

static uint32_t pattern(int device, size_t word) {
    return ((uint32_t)word + 1) * 2654435761u ^ ((uint32_t)device + 1) * 0x01000193u;
}

static yoke_status try_copy(const peer_test *test, int to, int from, bool *arrived) {
    yoke_device *device = test->devices[to];
    uint32_t *landing = test->memory[to] + PROBE_WORDS;
    TRY(yoke_device_clear(device, YOKE_STREAM_COPY, landing, PROBE_BYTES));
    TRY(cuda_copy(device, YOKE_STREAM_COPY, landing, test->devices[from], test->memory[from],
                  PROBE_BYTES));
    TRY(yoke_device_download(device, YOKE_STREAM_COPY, test->host, landing, PROBE_BYTES));
    *arrived = true;
    for (size_t i = 0; i < PROBE_WORDS && *arrived; i++)
        *arrived = test->host[i] == pattern(from, i);
    return YOKE_OK;
}

static yoke_status test_pair(const peer_test *test, int to, int from) {
    cuda_device *target = cuda_of(test->devices[to]), *source = cuda_of(test->devices[from]);
    bool arrived = false;
    if (target->ordinal == source->ordinal || find_staging(target, source) != NULL) return YOKE_OK;
    TRY(try_copy(test, to, from, &arrived));
    if (arrived) return YOKE_OK;
    TRY(open_staging(target, source));
    /* Append to the note. */
    bool first = target->stagings->next == NULL;
    size_t length = strlen(target->note);
    snprintf(target->note + length, sizeof target->note - length, "%s%s%s",
             first && length > 0 ? "; " : "",
             first ? "through host memory, since direct copies are wrong: copies from " : ", ",
             source->base.name);
    TRY(try_copy(test, to, from, &arrived));
    if (arrived) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE,
                "%s: copies from %s are wrong, also through host memory; test the memory of "
                "machine and GPUs, or leave one of the two out of the list",
                target->base.name, source->base.name);
}

static yoke_status run_test(peer_test *test) {
    for (int k = 0; k < test->count; k++) {
        yoke_device *device = test->devices[k];
        for (size_t i = 0; i < PROBE_WORDS; i++)
            test->host[i] = pattern(k, i);
        TRY(yoke_device_allocate(device, 2 * PROBE_BYTES, "a test of copies",
                                 (void **)&test->memory[k]));
        TRY(yoke_device_upload(device, YOKE_STREAM_COPY, test->memory[k], test->host, PROBE_BYTES));
        TRY(yoke_device_synchronize(device));
    }
    for (int to = 0; to < test->count; to++) {
        for (int from = 0; from < test->count; from++)
            TRY(test_pair(test, to, from));
    }
    return YOKE_OK;
}

static yoke_status test_copies(yoke_device *const *devices, int count) {
    peer_test test = {.devices = devices, .count = count, .host = yoke_malloc(PROBE_BYTES)};
    if (test.host == NULL) return FAIL_MEMORY(PROBE_BYTES, "a test of copies");
    yoke_status status = run_test(&test);
    for (int k = 0; status != YOKE_OK && k < count; k++) /* copies may still run */
        cudaStreamSynchronize(cuda_of(devices[k])->streams[YOKE_STREAM_COPY]);
    for (int k = 0; k < count; k++)
        yoke_device_free(devices[k], test.memory[k]);
    yoke_free(test.host);
    return status;
}

static yoke_status connect_pairs(yoke_device *const *devices, int count) {
    bool several = false;
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < count; k++) {
            if (cuda_path(devices[i], devices[k]) == YOKE_PEER_SAME) continue;
            TRY(open_access(cuda_of(devices[i]), cuda_of(devices[k])));
            several = true;
        }
    }
    return several ? test_copies(devices, count) : YOKE_OK;
}

yoke_status cuda_connect(yoke_device *const *devices, int count) {
    cuda_device *root = cuda_of(devices[0]);
    int before = 0;
    TRY(cuda_visit(&root->base, &before));
    yoke_status status = connect_pairs(devices, count);
    cuda_return_to(before);
    return status;
}
