/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives by NCCL: one communicator for each GPU; one thread issues a call on all of them as an
 * NCCL group. */
#include "device/cuda/nccl.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef YOKE_HAS_NCCL

#define NAMES_BYTES 160

ncclResult_t cuda_nccl_name(char *name, size_t size) {
    int version = 0;
    ncclResult_t result = cuda_nccl()->ncclGetVersion(&version);
    snprintf(name, size, "nccl %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return result;
}

/* Gradients, weights and weights in 16 bits; others go unregistered. */
enum { REGISTERED = 3 };

typedef struct nccl_group {
    yoke_device_group base;
    int registered;
    void *handles[REGISTERED][YOKE_DEVICES_LIMIT]; /* of a buffer, by each communicator */
    bool aborted;                                  /* it can only be destroyed */
    yoke_device *devices[YOKE_DEVICES_LIMIT];
    cuda_nccl_watchdog watchdog;
} nccl_group;

static nccl_group *nccl_of(yoke_device_group *group) {
    return (nccl_group *)group;
}

static ncclComm_t communicator_of(const nccl_group *group, int k) {
    return group->watchdog.communicators[k];
}

static cudaStream_t stream_of(const nccl_group *group, int k) {
    return cuda_nccl_stream(group->devices[k]);
}

/* Failure. */

static const char *device_names(yoke_device *const *devices, int count, char *text) {
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < count && used < NAMES_BYTES; k++)
        used += (size_t)snprintf(text + used, NAMES_BYTES - used, "%s%s", k > 0 ? ", " : "",
                                 devices[k]->name);
    return text;
}

static yoke_status fail_group(nccl_group *group, ncclResult_t result, const char *call) {
    char names[NAMES_BYTES], cause[CUDA_NCCL_CAUSE_BYTES];
    device_names(group->devices, group->base.count, names);
    cuda_nccl_cause(&group->watchdog, result, cause);
    cuda_nccl_abort(&group->watchdog);
    group->aborted = true;
    return FAIL(YOKE_ERROR_DEVICE,
                "NCCL on %s: %s: %s; use collectives \"copy\", or set NCCL_DEBUG=INFO for details",
                names, call, cause);
}

typedef ncclResult_t (*group_call)(nccl_group *group, int k, const void *request);

/* Issues the same call on every communicator as one group: alone, the first call would wait for the
 * others. Only the end of the group waits; where a call is missing, it would wait for ever. */
static ncclResult_t call_all(nccl_group *group, group_call call, const void *request) {
    ncclResult_t result = cuda_nccl()->ncclGroupStart();
    if (result != ncclSuccess) return result;
    for (int k = 0; k < group->base.count && result == ncclSuccess; k++)
        result = call(group, k, request);
    if (result != ncclSuccess) group->watchdog.timeout_ms = 0;
    cuda_nccl_enter(&group->watchdog);
    ncclResult_t ended = cuda_nccl_leave(&group->watchdog, cuda_nccl()->ncclGroupEnd());
    return result == ncclSuccess ? ended : result;
}

/* Collectives. */

static ncclResult_t reduce_one(nccl_group *group, int k, const void *request) {
    const yoke_range *range = request;
    float *values = range->buffers[k] + range->offset;
    return cuda_nccl()->ncclReduce(values, values, range->elements, ncclFloat, ncclSum, 0,
                                   communicator_of(group, k), stream_of(group, k));
}

static ncclResult_t broadcast_one(nccl_group *group, int k, const void *request) {
    const yoke_range *range = request;
    float *values = range->buffers[k] + range->offset;
    return cuda_nccl()->ncclBroadcast(values, values, range->elements, ncclFloat, 0,
                                      communicator_of(group, k), stream_of(group, k));
}

static ncclResult_t reduce_scatter_one(nccl_group *group, int k, const void *request) {
    const yoke_range *range = request;
    size_t part = range->elements / (size_t)group->base.count;
    float *values = range->buffers[k] + range->offset;
    return cuda_nccl()->ncclReduceScatter(values, values + (size_t)k * part, part, ncclFloat,
                                          ncclSum, communicator_of(group, k), stream_of(group, k));
}

static ncclResult_t all_gather_one(nccl_group *group, int k, const void *request) {
    const yoke_range *range = request;
    size_t part = range->elements / (size_t)group->base.count;
    float *values = range->buffers[k] + range->offset;
    return cuda_nccl()->ncclAllGather(values + (size_t)k * part, values, part, ncclFloat,
                                      communicator_of(group, k), stream_of(group, k));
}

/* NCCL gathers equal parts alone. Each GPU that has an unequal part broadcasts it. */
static ncclResult_t broadcast_parts_one(nccl_group *group, int k, const void *request) {
    const yoke_range *range = request;
    ncclResult_t result = ncclSuccess;
    for (int from = 0; from < group->base.count && result == ncclSuccess; from++) {
        size_t part = range->cuts[from + 1] - range->cuts[from];
        float *values = range->buffers[k] + range->offset + range->cuts[from];
        if (part > 0)
            result = cuda_nccl()->ncclBroadcast(values, values, part, ncclFloat, from,
                                                communicator_of(group, k), stream_of(group, k));
    }
    return result;
}

static yoke_status collect(nccl_group *group, const char *name, group_call call,
                           const yoke_range *range) {
    char names[NAMES_BYTES];
    if (group->aborted)
        return FAIL(YOKE_ERROR_DEVICE, "NCCL on %s: %s: aborted after an earlier failure",
                    device_names(group->devices, group->base.count, names), name);
    ncclResult_t result = call_all(group, call, range);
    return result == ncclSuccess ? YOKE_OK : fail_group(group, result, name);
}

/* NCCL sums over all GPUs: those that do not contribute hold zeros. */
static yoke_status clear_others(nccl_group *group, const yoke_range *range, int contributors) {
    for (int k = contributors; k < group->base.count; k++)
        TRY(yoke_device_clear(group->devices[k], YOKE_STREAM_COMMUNICATION,
                              range->buffers[k] + range->offset, range->elements * sizeof(float)));
    return YOKE_OK;
}

static yoke_status reduce(yoke_device_group *base, const yoke_range *range, int contributors) {
    TRY(clear_others(nccl_of(base), range, contributors));
    return collect(nccl_of(base), "ncclReduce", reduce_one, range);
}

static yoke_status broadcast(yoke_device_group *base, const yoke_range *range) {
    return collect(nccl_of(base), "ncclBroadcast", broadcast_one, range);
}

static yoke_status reduce_scatter(yoke_device_group *base, const yoke_range *range,
                                  int contributors) {
    TRY(clear_others(nccl_of(base), range, contributors));
    return collect(nccl_of(base), "ncclReduceScatter", reduce_scatter_one, range);
}

static yoke_status all_gather(yoke_device_group *base, const yoke_range *range) {
    if (range->cuts != NULL)
        return collect(nccl_of(base), "ncclBroadcast", broadcast_parts_one, range);
    return collect(nccl_of(base), "ncclAllGather", all_gather_one, range);
}

/* Buffers. */

/* A buffer that NCCL does not register works as well. Memory is freed while its GPU is current, and
 * so are handles. */
static void register_buffers(yoke_device_group *base, float *const *buffers, size_t bytes) {
    nccl_group *group = nccl_of(base);
    if (group->aborted || group->registered == REGISTERED) return;
    void **handles = group->handles[group->registered++];
    for (int k = 0; k < base->count; k++)
        if (cuda_nccl()->ncclCommRegister(communicator_of(group, k), buffers[k], bytes,
                                          &handles[k]) != ncclSuccess)
            handles[k] = NULL;
}

static void deregister_buffers(nccl_group *group) {
    for (int i = 0; i < group->registered; i++)
        for (int k = 0; k < group->base.count; k++)
            if (group->handles[i][k] != NULL && communicator_of(group, k) != NULL)
                cuda_nccl()->ncclCommDeregister(communicator_of(group, k), group->handles[i][k]);
}

/* NCCL's memory is of the kind that a switch between the GPUs can sum. Without NCCL, and where it
 * has none, ordinary memory serves. */
yoke_status cuda_allocate_collective(yoke_device *device, size_t bytes, void **memory) {
    cuda_device *cuda = cuda_of(device);
    cudaStream_t stream = cuda->streams[YOKE_STREAM_COMPUTE];
    *memory = NULL;
    if (cuda_nccl() == NULL || bytes == 0) return YOKE_OK;
    TRY(cuda_use(device));
    if (cuda_nccl()->ncclMemAlloc(memory, bytes) != ncclSuccess) {
        *memory = NULL;
        return YOKE_OK;
    }
    cudaError_t error = cudaMemsetAsync(*memory, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    if (error == cudaSuccess) return YOKE_OK;
    cuda_release_collective(device, *memory);
    *memory = NULL;
    return cuda_failed(cuda, error, "cudaMemsetAsync");
}

void cuda_release_collective(yoke_device *device, void *pointer) {
    int before = cuda_current();
    cuda_return_to(cuda_of(device)->ordinal);
    if (pointer != NULL) cuda_nccl()->ncclMemFree(pointer);
    cuda_return_to(before);
}

/* Life. */

static ncclResult_t finalize_one(nccl_group *group, int k, const void *request) {
    (void)request;
    return cuda_nccl()->ncclCommFinalize(communicator_of(group, k));
}

static void nccl_group_destroy(yoke_device_group *base) {
    nccl_group *group = nccl_of(base);
    deregister_buffers(group);
    if (!group->aborted && call_all(group, finalize_one, NULL) != ncclSuccess)
        cuda_nccl_abort(&group->watchdog);
    for (int k = 0; k < base->count; k++) {
        if (communicator_of(group, k) != NULL)
            cuda_nccl()->ncclCommDestroy(communicator_of(group, k));
    }
    cuda_nccl_watchdog_stop(&group->watchdog);
    yoke_free(group);
}

static ncclResult_t join_one(nccl_group *group, int k, const void *request) {
    const ncclUniqueId *id = request;
    if (cuda_use(group->devices[k]) != YOKE_OK) return ncclUnhandledCudaError;
    return cuda_nccl()->ncclCommInitRank(&group->watchdog.communicators[k], group->base.count, *id,
                                         k);
}

static yoke_status nccl_group_build(nccl_group *group, const yoke_device_group_request *request) {
    group->aborted = true; /* until communicators exist */
    group->watchdog.timeout_ms =
        request->timeout_ms > 0 ? request->timeout_ms : CUDA_NCCL_TIMEOUT_MS;
    group->watchdog.count = request->count;
    group->watchdog.ordinal = cuda_of(request->devices[0])->ordinal;
    for (int k = 0; k < request->count; k++)
        group->devices[k] = request->devices[k];
    TRY(cuda_nccl_watchdog_start(&group->watchdog));
    ncclUniqueId id;
    ncclResult_t result = cuda_nccl_name(group->base.name, sizeof group->base.name);
    if (result != ncclSuccess) return fail_group(group, result, "ncclGetVersion");
    result = cuda_nccl()->ncclGetUniqueId(&id);
    if (result != ncclSuccess) return fail_group(group, result, "ncclGetUniqueId");
    result = call_all(group, join_one, &id);
    if (result != ncclSuccess) return fail_group(group, result, "ncclCommInitRank");
    group->aborted = false;
    return YOKE_OK;
}

/* Whether NCCL can be used, or why not. */
static yoke_status nccl_group_check(const yoke_device_group_request *request) {
    if (cuda_nccl() == NULL)
        return FAIL(YOKE_ERROR_DEVICE, "collectives \"nccl\": %s", cuda_library_detail("nccl"));
    for (int second = 1; second < request->count; second++)
        for (int first = 0; first < second; first++) {
            int gpu = cuda_of(request->devices[first])->ordinal;
            if (gpu == cuda_of(request->devices[second])->ordinal)
                return FAIL(YOKE_ERROR_DEVICE, /* NCCL's own message is less clear */
                            "collectives \"nccl\": devices %d and %d are both GPU %d, and NCCL "
                            "takes each GPU once; choose \"copy\"",
                            first, second, gpu);
        }
    return YOKE_OK;
}

yoke_status cuda_nccl_group(yoke_device_group **group, const yoke_device_group_request *request) {
    *group = NULL;
    bool automatic = request->kind == YOKE_COLLECTIVES_AUTO;
    if (automatic && request->count < 2) return YOKE_OK;
    yoke_status possible = nccl_group_check(request);
    if (possible != YOKE_OK) return automatic ? YOKE_OK : possible;
    nccl_group *created = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "a group of GPUs");
    created->base = (yoke_device_group){.count = request->count,
                                        .reduce = reduce,
                                        .broadcast = broadcast,
                                        .reduce_scatter = reduce_scatter,
                                        .all_gather = all_gather,
                                        .register_buffers = register_buffers,
                                        .destroy = nccl_group_destroy};
    yoke_status status = nccl_group_build(created, request);
    if (status == YOKE_OK)
        *group = &created->base;
    else
        nccl_group_destroy(&created->base);
    return status;
}

#else

yoke_status cuda_allocate_collective(yoke_device *device, size_t bytes, void **memory) {
    (void)device, (void)bytes;
    *memory = NULL;
    return YOKE_OK;
}

void cuda_release_collective(yoke_device *device, void *pointer) {
    (void)device, (void)pointer;
}

yoke_status cuda_nccl_group(yoke_device_group **group, const yoke_device_group_request *request) {
    *group = NULL;
    if (request->kind == YOKE_COLLECTIVES_AUTO) return YOKE_OK;
    return FAIL(YOKE_ERROR_DEVICE,
                "collectives \"nccl\": this build has no NCCL; configure it with "
                "NCCL_ROOT set to where it is, or choose \"copy\"");
}

#endif
