/* How fast copies between two devices are, measured as they are made in training. */
#include "device/backend.h"

#define COPY_BYTES ((size_t)16 << 20)
#define LEAST_NS 5000000 /* of copying: shorter is mostly the start of a copy */

typedef struct copy_ends {
    yoke_device *to_device, *from_device;
    void *to, *from;
} copy_ends;

/* The first copies, which set up what later ones find, are not counted. */
static yoke_status time_copies(const copy_ends *ends, double *bytes_per_second) {
    uint64_t elapsed = 0;
    for (int copies = 1; elapsed < LEAST_NS; copies *= 2) {
        TRY(yoke_device_synchronize(ends->to_device));
        uint64_t start = yoke_now_ns();
        for (int i = 0; i < copies; i++)
            TRY(yoke_device_copy(ends->to_device, YOKE_STREAM_COPY, ends->to, ends->from_device,
                                 ends->from, COPY_BYTES));
        TRY(yoke_device_synchronize(ends->to_device));
        elapsed = yoke_now_ns() - start;
        *bytes_per_second = (double)COPY_BYTES * copies / (double)(elapsed + 1) * 1e9;
    }
    return YOKE_OK;
}

static yoke_status allocate_and_time(copy_ends *ends, double *bytes_per_second) {
    TRY(yoke_device_allocate(ends->from_device, COPY_BYTES, "a test of copies", &ends->from));
    TRY(yoke_device_allocate(ends->to_device, COPY_BYTES, "a test of copies", &ends->to));
    return time_copies(ends, bytes_per_second);
}

/* After a failure copies may be under way: their memory is not given back before they are done. */
static yoke_status measure(copy_ends *ends, double *bytes_per_second) {
    yoke_status status = allocate_and_time(ends, bytes_per_second);
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
        return FAIL(YOKE_ERROR_ARGUMENT, "a copy from device %d to %d; 0 to %d are open", from, to,
                    count - 1);
    copy_ends ends = {.to_device = yoke_devices_at(devices, to),
                      .from_device = yoke_devices_at(devices, from)};
    yoke_peer_info own = {.struct_size = sizeof own};
    own.path = ends.to_device->backend->path(ends.to_device, ends.from_device);
    yoke_device_scope scope;
    TRY(yoke_device_enter(ends.to_device, false, &scope));
    yoke_status status = measure(&ends, &own.bytes_per_second);
    yoke_device_leave(ends.to_device, &scope);
    if (status != YOKE_OK) return status;
    return yoke_options_store(info, &own, sizeof own, "yoke_peer_info");
}
