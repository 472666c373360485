/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of devices and copies between them. It keeps a list of the allocations, so that an
 * out-of-memory message can name the largest. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"

struct yoke_allocation {
    void *pointer;
    size_t bytes;
    char what[32];
    void (*release)(yoke_device *device, void *pointer);
    struct yoke_allocation *next;
};

#define HOLDERS 3

/* The sum of all allocations with the same `what`. */
typedef struct holder {
    const char *what;
    size_t bytes;
} holder;

static size_t held_by(const yoke_device *device, const char *what) {
    size_t bytes = 0;
    for (const struct yoke_allocation *at = device->allocations; at != NULL; at = at->next) {
        if (strcmp(at->what, what) == 0) bytes += at->bytes;
    }
    return bytes;
}

static bool is_known(const holder *holders, const char *what) {
    for (int i = 0; i < HOLDERS; i++) {
        if (holders[i].what != NULL && strcmp(holders[i].what, what) == 0) return true;
    }
    return false;
}

static const char *list_holders(const yoke_device *device, char *text, size_t size) {
    holder holders[HOLDERS] = {0};
    char bytes[32];
    size_t length = 0;
    for (const struct yoke_allocation *at = device->allocations; at != NULL; at = at->next) {
        holder next = {at->what, is_known(holders, at->what) ? 0 : held_by(device, at->what)};
        for (int i = 0; i < HOLDERS; i++) {
            if (next.bytes <= holders[i].bytes) continue;
            holder smaller = holders[i];
            holders[i] = next;
            next = smaller;
        }
    }
    snprintf(text, size, "nothing");
    for (int i = 0; i < HOLDERS && holders[i].bytes > 0 && length < size; i++)
        length += (size_t)snprintf(
            text + length, size - length, "%s%s by %s", length > 0 ? ", " : "",
            yoke_text_bytes((double)holders[i].bytes, bytes, sizeof bytes), holders[i].what);
    return text;
}

/* What may help differs: the caller knows whether rows, parameters or the optimizer asked. */
static yoke_status out_of_memory(const yoke_device *device, size_t bytes, const char *what) {
    char wanted[32], left[32], total[32], available[96] = "", holders[256], advice[128];
    yoke_device_info info = {.struct_size = sizeof info};
    device->backend->describe(device, &info);
    if (info.memory_free > 0)
        snprintf(available, sizeof available, ", %s of %s free",
                 yoke_text_bytes((double)info.memory_free, left, sizeof left),
                 yoke_text_bytes((double)info.memory_bytes, total, sizeof total));
    return FAIL(YOKE_ERROR_MEMORY, "%s: out of memory: %s for %s%s; held: %s%s", device->name,
                yoke_text_bytes((double)bytes, wanted, sizeof wanted), what, available,
                list_holders(device, holders, sizeof holders),
                yoke_room_advice(advice, sizeof advice));
}

size_t yoke_device_free_bytes(const yoke_device *device) {
    yoke_device_info info = {.struct_size = sizeof info};
    device->backend->describe(device, &info);
    return info.memory_free;
}

/* Falls back on ordinary memory. */
static yoke_status allocate(yoke_device *device, size_t bytes, bool collective,
                            struct yoke_allocation *allocation) {
    const yoke_backend *backend = device->backend;
    allocation->release = backend->release_collective;
    if (collective && backend->allocate_collective != NULL)
        TRY(backend->allocate_collective(device, bytes, &allocation->pointer));
    if (allocation->pointer != NULL) return YOKE_OK;
    allocation->release = backend->release;
    return backend->allocate(device, bytes, &allocation->pointer);
}

static yoke_status allocate_and_note(yoke_device *device, size_t bytes, const char *what,
                                     bool collective, void **pointer) {
    *pointer = NULL;
    struct yoke_allocation *allocation = yoke_calloc(1, sizeof *allocation);
    if (allocation == NULL) return FAIL_MEMORY(sizeof *allocation, what);
    yoke_status status = allocate(device, bytes, collective, allocation);
    if (status != YOKE_OK) {
        yoke_free(allocation);
        return status == YOKE_ERROR_MEMORY ? out_of_memory(device, bytes, what) : status;
    }
    snprintf(allocation->what, sizeof allocation->what, "%s", what);
    allocation->bytes = bytes;
    allocation->next = device->allocations;
    device->allocations = allocation;
    device->allocated += bytes;
    *pointer = allocation->pointer;
    return YOKE_OK;
}

yoke_status yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                 void **pointer) {
    return allocate_and_note(device, bytes, what, false, pointer);
}

yoke_status yoke_device_allocate_collective(yoke_device *device, size_t bytes, const char *what,
                                            void **pointer) {
    return allocate_and_note(device, bytes, what, true, pointer);
}

void yoke_device_free(yoke_device *device, void *pointer) {
    struct yoke_allocation **link = &device->allocations;
    while (*link != NULL && (*link)->pointer != pointer)
        link = &(*link)->next;
    struct yoke_allocation *allocation = *link;
    if (allocation == NULL) return;
    *link = allocation->next;
    device->allocated -= allocation->bytes;
    allocation->release(device, pointer);
    yoke_free(allocation);
}

size_t yoke_device_allocated(const yoke_device *device) {
    return device->allocated;
}

/* Pinned memory that Yoke has allocated: what it is needs no call to find out. */

typedef struct yoke_pinned {
    const char *begin;
    size_t bytes;
    struct yoke_pinned *next;
} pinned_memory;

static yoke_status allocate_pinned(yoke_device *device, size_t bytes, void **pointer) {
    pinned_memory *memory = yoke_malloc(sizeof *memory);
    *pointer = NULL;
    if (memory == NULL) return YOKE_ERROR_MEMORY;
    yoke_status status = device->backend->allocate_host(device, bytes, pointer);
    if (status != YOKE_OK) {
        yoke_free(memory);
        return status;
    }
    *memory = (pinned_memory){.begin = *pointer, .bytes = bytes > 0 ? bytes : 1};
    pthread_mutex_lock(&device->pinned_turn);
    memory->next = device->pinned;
    device->pinned = memory;
    pthread_mutex_unlock(&device->pinned_turn);
    return YOKE_OK;
}

static void forget_pinned(yoke_device *device, const void *pointer) {
    pthread_mutex_lock(&device->pinned_turn);
    pinned_memory **link = &device->pinned;
    while (*link != NULL && (*link)->begin != pointer)
        link = &(*link)->next;
    pinned_memory *memory = *link;
    if (memory != NULL) *link = memory->next;
    pthread_mutex_unlock(&device->pinned_turn);
    yoke_free(memory);
}

static bool is_pinned(yoke_device *device, const void *pointer) {
    uintptr_t at = (uintptr_t)pointer;
    pthread_mutex_lock(&device->pinned_turn);
    const pinned_memory *memory = device->pinned;
    while (memory != NULL && at - (uintptr_t)memory->begin >= memory->bytes)
        memory = memory->next;
    pthread_mutex_unlock(&device->pinned_turn);
    return memory != NULL;
}

yoke_status yoke_device_allocate_host(yoke_device *device, size_t bytes, const char *what,
                                      void **pointer) {
    const yoke_backend *backend = device->backend;
    yoke_status status = YOKE_OK;
    if (backend->allocate_host != NULL)
        status = allocate_pinned(device, bytes, pointer);
    else if ((*pointer = yoke_calloc(1, bytes > 0 ? bytes : 1)) == NULL)
        status = YOKE_ERROR_MEMORY;
    if (status != YOKE_ERROR_MEMORY) return status;
    char wanted[32];
    return FAIL(YOKE_ERROR_MEMORY, "%s: out of host memory: %s for %s", device->name,
                yoke_text_bytes((double)bytes, wanted, sizeof wanted), what);
}

void yoke_device_free_host(yoke_device *device, void *pointer) {
    if (pointer == NULL) return;
    if (device->backend->release_host != NULL) {
        forget_pinned(device, pointer);
        device->backend->release_host(device, pointer);
    } else {
        yoke_free(pointer);
    }
}

yoke_status yoke_device_owns(yoke_device *device, const void *pointer, bool *owns) {
    yoke_memory memory = YOKE_MEMORY_ORDINARY;
    *owns = false;
    if (device->backend->memory == NULL) return YOKE_OK;
    TRY(device->backend->memory(device, pointer, &memory));
    *owns = memory == YOKE_MEMORY_DEVICE;
    return YOKE_OK;
}

yoke_status yoke_device_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                               size_t bytes) {
    if (bytes == 0) return YOKE_OK;
    return device->backend->upload(device, stream, to, from, bytes);
}

yoke_status yoke_device_download(yoke_device *device, yoke_stream stream, void *to,
                                 const void *from, size_t bytes) {
    if (bytes == 0) return YOKE_OK;
    return device->backend->download(device, stream, to, from, bytes);
}

yoke_status yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                             yoke_device *from_device, const void *from, size_t bytes) {
    if (bytes == 0) return YOKE_OK; /* a model without batch norm has no buffers */
    return to_device->backend->copy(to_device, stream, to, from_device, from, bytes);
}

yoke_status yoke_device_receive(yoke_device *device, yoke_stream stream, void *to,
                                yoke_device *location, const void *from, size_t bytes) {
    return location != NULL ? yoke_device_copy(device, stream, to, location, from, bytes)
                            : yoke_device_upload(device, stream, to, from, bytes);
}

yoke_status yoke_device_queue_upload(yoke_device *device, yoke_stream stream, void *to,
                                     const void *from, size_t bytes) {
    if (device->backend->queue_upload == NULL)
        return yoke_device_upload(device, stream, to, from, bytes);
    return bytes > 0 ? device->backend->queue_upload(device, stream, to, from, bytes) : YOKE_OK;
}

yoke_status yoke_device_finish_uploads(yoke_device *device, yoke_stream stream) {
    if (device->backend->finish_uploads == NULL) return YOKE_OK;
    return device->backend->finish_uploads(device, stream);
}

yoke_status yoke_devices_locate(const yoke_devices *devices, const void *pointer,
                                yoke_device **location, bool *pinned) {
    yoke_error elsewhere = {.status = YOKE_OK};
    *location = NULL;
    *pinned = false;
    for (int i = 0; i < yoke_devices_count(devices) && !*pinned; i++)
        *pinned = is_pinned(yoke_devices_at(devices, i), pointer);
    if (*pinned) return YOKE_OK;
    for (int i = 0; i < yoke_devices_count(devices); i++) {
        yoke_device *device = yoke_devices_at(devices, i);
        yoke_memory memory = YOKE_MEMORY_ORDINARY;
        yoke_status status = YOKE_OK;
        if (device->backend->memory != NULL)
            status = device->backend->memory(device, pointer, &memory);
        *pinned = memory == YOKE_MEMORY_PINNED;
        if (status == YOKE_OK && memory == YOKE_MEMORY_DEVICE) *location = device;
        if (status != YOKE_ERROR_ARGUMENT) return status; /* else memory of another GPU */
        elsewhere = yoke_error_take(status);
    }
    return FAIL(YOKE_ERROR_ARGUMENT, "%s, which is not in the list of devices", elsewhere.text);
}

yoke_status yoke_device_clear(yoke_device *device, yoke_stream stream, void *to, size_t bytes) {
    if (bytes == 0) return YOKE_OK;
    return device->backend->clear(device, stream, to, bytes);
}

bool yoke_device_reaches(const yoke_device *device, const yoke_device *other) {
    return device->backend == other->backend &&
           device->backend->path(device, other) != YOKE_PEER_HOST;
}

/* Bandwidth and latency of copies between two devices, measured with the copies that training
 * makes. */

#define COPY_BYTES ((size_t)16 << 20)
#define LEAST_NS 5000000 /* in a shorter time the start of a copy dominates */
#define SMALL_BYTES ((size_t)64)
#define SMALL_COPIES 200

typedef struct copy_ends {
    yoke_device *to_device, *from_device;
    void *to, *from;
} copy_ends;

/* The fastest: other programs only make copies longer. */
static yoke_status time_small_copies(const copy_ends *ends, double *seconds) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < SMALL_COPIES; i++) {
        uint64_t start = yoke_now_ns();
        TRY(yoke_device_copy(ends->to_device, YOKE_STREAM_COPY, ends->to, ends->from_device,
                             ends->from, SMALL_BYTES));
        TRY(yoke_device_synchronize(ends->to_device));
        uint64_t elapsed = yoke_now_ns() - start;
        least = elapsed < least ? elapsed : least;
    }
    *seconds = 1e-9 * (double)(least + 1);
    return YOKE_OK;
}

static yoke_status allocate_and_time(copy_ends *ends, yoke_peer_info *info) {
    TRY(yoke_device_allocate(ends->from_device, COPY_BYTES, "a test of copies", &ends->from));
    TRY(yoke_device_allocate(ends->to_device, COPY_BYTES, "a test of copies", &ends->to));
    /* Doubles the number of copies until they take long enough. Only the last round counts: the
     * first copies include one-time set-up. */
    uint64_t elapsed = 0;
    for (int copies = 1; elapsed < LEAST_NS; copies *= 2) {
        TRY(yoke_device_synchronize(ends->to_device));
        uint64_t start = yoke_now_ns();
        for (int i = 0; i < copies; i++)
            TRY(yoke_device_copy(ends->to_device, YOKE_STREAM_COPY, ends->to, ends->from_device,
                                 ends->from, COPY_BYTES));
        TRY(yoke_device_synchronize(ends->to_device));
        elapsed = yoke_now_ns() - start;
        info->bytes_per_second = (double)COPY_BYTES * copies / (double)(elapsed + 1) * 1e9;
    }
    return time_small_copies(ends, &info->latency_seconds);
}

/* After a failure copies may still run: wait for them before freeing their memory. */
static yoke_status measure_peer(copy_ends *ends, yoke_peer_info *info) {
    yoke_status status = allocate_and_time(ends, info);
    yoke_error error = yoke_error_take(status);
    if (status != YOKE_OK) {
        (void)yoke_device_synchronize(ends->from_device);
        (void)yoke_device_synchronize(ends->to_device);
    }
    yoke_device_free(ends->to_device, ends->to);
    yoke_device_free(ends->from_device, ends->from);
    return status == YOKE_OK ? YOKE_OK : yoke_error_restore(&error);
}

yoke_status yoke_devices_peer(const yoke_devices *devices, int from, int to, yoke_peer_info *info) {
    TRY(yoke_pointer_check(devices, "devices"));
    int count = yoke_devices_count(devices);
    if (from < 0 || from >= count || to < 0 || to >= count)
        return FAIL(YOKE_ERROR_ARGUMENT, "a copy from device %d to %d: the list has 0 to %d", from,
                    to, count - 1);
    copy_ends ends = {.to_device = yoke_devices_at(devices, to),
                      .from_device = yoke_devices_at(devices, from)};
    yoke_peer_info own = {.struct_size = sizeof own};
    own.path = ends.to_device->backend->path(ends.to_device, ends.from_device);
    yoke_device_scope scope;
    TRY(yoke_device_start_team(ends.to_device));
    TRY(yoke_device_enter(ends.to_device, false, &scope));
    yoke_status status = measure_peer(&ends, &own);
    yoke_device_leave(ends.to_device, &scope);
    yoke_device_end_team(ends.to_device);
    if (status != YOKE_OK) return status;
    return yoke_options_store(info, &own, sizeof own, "yoke_peer_info");
}
