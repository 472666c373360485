/* Between GPUs: which may read which, and copies. Hardware and virtual machines lie about peer
 * copies, so each pair of GPUs is tried with a pattern first; a pair whose copies arrive wrong goes
 * through host memory from then on. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

#define CHUNK_BYTES ((size_t)1 << 20)
#define PROBE_WORDS ((size_t)16384)
#define PROBE_BYTES (PROBE_WORDS * sizeof(uint32_t))

/* From one GPU to the device that holds it: a chunk of pinned memory for each stream that pulls. */
typedef struct cuda_detour {
    cuda_device *from;
    void *host[YOKE_STREAMS];
    cudaEvent_t empty[YOKE_STREAMS], full[YOKE_STREAMS]; /* recorded by puller and by `from` */
    struct cuda_detour *next;
} cuda_detour;

/* Detours. */

static yoke_status build_detour(cuda_detour *detour, cuda_device *to) {
    for (int i = 0; i < YOKE_STREAMS; i++) {
        TRY(cuda_use(&detour->from->base));
        TRY_CUDA(to, cudaEventCreateWithFlags(&detour->full[i], cudaEventDisableTiming));
        TRY(cuda_use(&to->base));
        TRY_CUDA(to, cudaEventCreateWithFlags(&detour->empty[i], cudaEventDisableTiming));
        TRY_CUDA(to, cudaHostAlloc(&detour->host[i], CHUNK_BYTES, cudaHostAllocPortable));
    }
    return YOKE_OK;
}

static yoke_status open_detour(cuda_device *to, cuda_device *from) {
    cuda_detour *detour = calloc(1, sizeof *detour);
    if (detour == NULL) return FAIL_MEMORY(sizeof *detour, "copies through host memory");
    detour->from = from;
    detour->next = to->detours;
    to->detours = detour; /* half-built, it is closed with the device */
    to->reach &= ~((uint64_t)1 << from->ordinal);
    return build_detour(detour, to);
}

void cuda_close_detours(cuda_device *device) {
    while (device->detours != NULL) {
        cuda_detour *detour = device->detours;
        device->detours = detour->next;
        for (int i = 0; i < YOKE_STREAMS; i++) {
            cudaStreamSynchronize(device->streams[i]);
            if (detour->host[i] != NULL) cudaFreeHost(detour->host[i]);
            if (detour->empty[i] != NULL) cudaEventDestroy(detour->empty[i]);
            if (detour->full[i] != NULL) cudaEventDestroy(detour->full[i]);
        }
        free(detour);
    }
}

static const cuda_detour *find_detour(const cuda_device *to, const cuda_device *from) {
    const cuda_detour *detour = to->detours;
    while (detour != NULL && detour->from->ordinal != from->ordinal)
        detour = detour->next;
    return detour;
}

static yoke_status fill_chunk(const cuda_detour *detour, yoke_stream stream, const void *from,
                              size_t bytes) {
    cuda_device *source = detour->from;
    cudaStream_t pushing = source->streams[YOKE_STREAM_COPY];
    TRY(cuda_use(&source->base));
    TRY_CUDA(source, cudaStreamWaitEvent(pushing, detour->empty[stream], 0));
    TRY_CUDA(source,
             cudaMemcpyAsync(detour->host[stream], from, bytes, cudaMemcpyDeviceToHost, pushing));
    TRY_CUDA(source, cudaEventRecord(detour->full[stream], pushing));
    return YOKE_OK;
}

/* Chunk by chunk: the puller's stream says that the chunk is free and `from` ready, the source
 * fills it, the puller takes it. */
static yoke_status copy_around(const cuda_detour *detour, cuda_device *to, yoke_stream stream,
                               void *target, const void *from, size_t bytes) {
    cudaStream_t pulling = to->streams[stream];
    for (size_t done = 0; done < bytes; done += CHUNK_BYTES) {
        size_t part = bytes - done < CHUNK_BYTES ? bytes - done : CHUNK_BYTES;
        TRY_CUDA(to, cudaEventRecord(detour->empty[stream], pulling));
        TRY(fill_chunk(detour, stream, (const char *)from + done, part));
        TRY(cuda_use(&to->base));
        TRY_CUDA(to, cudaStreamWaitEvent(pulling, detour->full[stream], 0));
        TRY_CUDA(to, cudaMemcpyAsync((char *)target + done, detour->host[stream], part,
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
    if (bytes == 0) return YOKE_OK;
    TRY(cuda_use(to_device));
    const cuda_detour *detour = find_detour(target, source);
    if (detour != NULL) return copy_around(detour, target, stream, to, from, bytes);
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

/* The test. memory[k]: the pattern of device k, then room for another's. */

typedef struct peer_test {
    yoke_device *const *devices;
    int count;
    uint32_t *memory[YOKE_DEVICES_LIMIT];
    uint32_t *host; /* what arrived */
} peer_test;

static uint32_t pattern(int device, size_t word) {
    return ((uint32_t)word + 1) * 2654435761u ^ ((uint32_t)device + 1) * 0x01000193u;
}

static yoke_status write_patterns(peer_test *test) {
    for (int k = 0; k < test->count; k++) {
        yoke_device *device = test->devices[k];
        for (size_t i = 0; i < PROBE_WORDS; i++)
            test->host[i] = pattern(k, i);
        TRY(yoke_device_allocate(device, 2 * PROBE_BYTES, "a test of copies",
                                 (void **)&test->memory[k]));
        TRY(yoke_device_upload(device, YOKE_STREAM_COPY, test->memory[k], test->host, PROBE_BYTES));
        TRY(yoke_device_synchronize(device));
    }
    return YOKE_OK;
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

static void note_detour(cuda_device *to, const cuda_device *from) {
    size_t length = strlen(to->note);
    snprintf(to->note + length, sizeof to->note - length, "%s%s",
             length > 0 ? ", " : "through host memory, since they arrive wrong: copies from ",
             from->base.name);
}

static yoke_status test_pair(const peer_test *test, int to, int from) {
    cuda_device *target = cuda_of(test->devices[to]), *source = cuda_of(test->devices[from]);
    bool arrived = false;
    if (target->ordinal == source->ordinal || find_detour(target, source) != NULL) return YOKE_OK;
    TRY(try_copy(test, to, from, &arrived));
    if (arrived) return YOKE_OK;
    TRY(open_detour(target, source));
    note_detour(target, source);
    TRY(try_copy(test, to, from, &arrived));
    if (arrived) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE,
                "%s: copies from %s arrive wrong, through host memory too; test the memory of "
                "machine and GPUs, or leave one of the two out of the list",
                target->base.name, source->base.name);
}

static yoke_status run_test(peer_test *test) {
    TRY(write_patterns(test));
    for (int to = 0; to < test->count; to++) {
        for (int from = 0; from < test->count; from++)
            TRY(test_pair(test, to, from));
    }
    return YOKE_OK;
}

static yoke_status test_copies(yoke_device *const *devices, int count) {
    peer_test test = {.devices = devices, .count = count, .host = malloc(PROBE_BYTES)};
    if (test.host == NULL) return FAIL_MEMORY(PROBE_BYTES, "a test of copies");
    yoke_status status = run_test(&test);
    for (int k = 0; status != YOKE_OK && k < count; k++) /* copies may be under way */
        cudaStreamSynchronize(cuda_of(devices[k])->streams[YOKE_STREAM_COPY]);
    for (int k = 0; k < count; k++)
        yoke_device_free(devices[k], test.memory[k]);
    free(test.host);
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
    TRY_CUDA(root, cudaGetDevice(&before));
    yoke_status status = connect_pairs(devices, count);
    cudaError_t error = cudaSetDevice(before);
    return status == YOKE_OK && error != cudaSuccess ? cuda_failed(root, error, "cudaSetDevice")
                                                     : status;
}
