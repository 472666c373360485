/* The devices of one machine: opens what a list names, keeps count of memory, passes the rest on to
 * the backend. The only file that names a backend. */
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"
#include "device/cores.h"
#include "device/device_list.h"

#define THREADS_LIMIT 1024

struct yoke_devices {
    int count, spare_cores;
    yoke_device *at[YOKE_DEVICES_LIMIT];
};

/* Backends. */

static bool describe_cuda(yoke_backend_info *info) {
    info->name = "cuda";
    info->detail = "not in this build";
    return false;
}

static const struct {
    const char *name;
    const yoke_backend *(*table)(void); /* NULL: not in this build */
    bool (*describe)(yoke_backend_info *info);
} backends[] = {
    {"cpu", yoke_cpu_backend, yoke_cpu_describe},
    {"cuda", NULL, describe_cuda},
};
enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

bool yoke_backend_describe(int index, yoke_backend_info *info) {
    if (index < 0 || index >= BACKEND_COUNT) return false;
    yoke_backend_info own = {.struct_size = sizeof own};
    own.available = backends[index].describe(&own);
    return yoke_options_store(info, &own, sizeof own, "yoke_backend_info") == YOKE_OK;
}

/* Devices. */

static yoke_status open_one(yoke_devices *devices, const yoke_devices_options *options,
                            const yoke_device_list *list) {
    int index = devices->count;
    int backend = list->entries[index].backend;
    if (backends[backend].table == NULL)
        return FAIL(YOKE_ERROR_DEVICE,
                    "device \"%s\": this build has no %s backend; \"cpu\" or \"4xcpu\" can be used",
                    backends[backend].name, backends[backend].name);
    const yoke_backend *table = backends[backend].table();
    yoke_backend_open request = {.index = index,
                                 .count = list->count,
                                 .ordinal = list->entries[index].ordinal,
                                 .threads = options->threads,
                                 .unbound = options->unbound};
    TRY(table->open(&devices->at[index], &request));
    devices->count++;
    devices->spare_cores -= devices->at[index]->threads;
    return YOKE_OK;
}

static yoke_status build_devices(yoke_devices *devices, const yoke_devices_options *options) {
    if (options->threads < 0 || options->threads > THREADS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d threads per device; 1 to %d can be set, 0 shares the cores",
                    options->threads, THREADS_LIMIT);
    const char *names[BACKEND_COUNT];
    for (int i = 0; i < BACKEND_COUNT; i++)
        names[i] = backends[i].name;
    yoke_device_list list;
    TRY(yoke_device_list_parse(&list, options->list != NULL ? options->list : "auto", names,
                               BACKEND_COUNT));
    cpu_set_t cores;
    devices->spare_cores = yoke_cores_allowed(&cores);
    while (devices->count < list.count)
        TRY(open_one(devices, options, &list));
    return YOKE_OK;
}

yoke_status yoke_devices_open(yoke_devices **devices, const yoke_devices_options *options) {
    TRY(yoke_pointer_check(devices, "devices"));
    *devices = NULL;
    yoke_devices_options own = {0};
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_devices_options"));
    yoke_devices *opened = calloc(1, sizeof *opened);
    if (opened == NULL) return FAIL_MEMORY(sizeof *opened, "the devices");
    yoke_status status = build_devices(opened, &own);
    if (status != YOKE_OK) {
        yoke_devices_close(opened);
        return status;
    }
    *devices = opened;
    return YOKE_OK;
}

void yoke_devices_close(yoke_devices *devices) {
    if (devices == NULL) return;
    while (devices->count > 0) {
        yoke_device *device = devices->at[--devices->count];
        device->backend->close(device);
    }
    free(devices);
}

int yoke_devices_count(const yoke_devices *devices) {
    return devices->count;
}

yoke_status yoke_devices_describe(const yoke_devices *devices, int index, yoke_device_info *info) {
    TRY(yoke_pointer_check(devices, "devices"));
    if (index < 0 || index >= devices->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "device %d of %d: there is none", index, devices->count);
    const yoke_device *device = devices->at[index];
    yoke_device_info own = {.struct_size = sizeof own, .threads = device->threads};
    memcpy(own.name, device->name, sizeof own.name);
    own.bfloat16 = yoke_device_supports(device, YOKE_BFLOAT16);
    device->backend->describe(device, &own);
    return yoke_options_store(info, &own, sizeof own, "yoke_device_info");
}

yoke_device *yoke_devices_at(const yoke_devices *devices, int index) {
    return devices->at[index];
}

const char *yoke_device_name(const yoke_device *device) {
    return device->name;
}

bool yoke_device_supports(const yoke_device *device, yoke_precision precision) {
    return device->backend->supports(device, precision);
}

bool yoke_devices_share_memory(const yoke_devices *devices) {
    return devices->at[0]->backend->shares_memory;
}

int yoke_devices_spare_cores(const yoke_devices *devices) {
    return devices->spare_cores;
}

yoke_status yoke_device_enter(yoke_device *device, bool bind, yoke_device_scope *scope) {
    return device->backend->enter(device, bind, scope);
}

void yoke_device_leave(yoke_device *device, const yoke_device_scope *scope) {
    device->backend->leave(device, scope);
}

yoke_status yoke_device_use(yoke_device *device) {
    return device->backend->use != NULL ? device->backend->use(device) : YOKE_OK;
}

const char *yoke_precision_name(yoke_precision precision) {
    static const char *const names[] = {"float32", "bfloat16", "tf32"};
    return names[precision];
}

/* Memory. */

struct yoke_allocation {
    void *pointer;
    size_t bytes;
    struct yoke_allocation *next;
};

static yoke_status out_of_memory(const yoke_device *device, size_t bytes, const char *what) {
    char wanted[32], held[32];
    return FAIL(YOKE_ERROR_MEMORY,
                "%s: out of memory: %s for %s, with %s held; use fewer rows a device", device->name,
                yoke_text_bytes((double)bytes, wanted, sizeof wanted), what,
                yoke_text_bytes((double)device->allocated, held, sizeof held));
}

yoke_status yoke_device_allocate(yoke_device *device, size_t bytes, const char *what,
                                 void **pointer) {
    *pointer = NULL;
    struct yoke_allocation *allocation = calloc(1, sizeof *allocation);
    if (allocation == NULL) return out_of_memory(device, bytes, what);
    allocation->pointer = device->backend->allocate(device, bytes);
    if (allocation->pointer == NULL) {
        free(allocation);
        return out_of_memory(device, bytes, what);
    }
    allocation->bytes = bytes;
    allocation->next = device->allocations;
    device->allocations = allocation;
    device->allocated += bytes;
    *pointer = allocation->pointer;
    return YOKE_OK;
}

void yoke_device_free(yoke_device *device, void *pointer) {
    struct yoke_allocation **link = &device->allocations;
    while (*link != NULL && (*link)->pointer != pointer)
        link = &(*link)->next;
    struct yoke_allocation *allocation = *link;
    if (allocation == NULL) return;
    *link = allocation->next;
    device->allocated -= allocation->bytes;
    device->backend->release(device, pointer);
    free(allocation);
}

size_t yoke_device_allocated(const yoke_device *device) {
    return device->allocated;
}

yoke_status yoke_device_allocate_host(yoke_device *device, size_t bytes, const char *what,
                                      void **pointer) {
    const yoke_backend *backend = device->backend;
    *pointer = backend->allocate_host != NULL ? backend->allocate_host(device, bytes)
                                              : calloc(1, bytes > 0 ? bytes : 1);
    return *pointer != NULL ? YOKE_OK : FAIL_MEMORY(bytes, what);
}

void yoke_device_free_host(yoke_device *device, void *pointer) {
    if (pointer == NULL) return;
    if (device->backend->release_host != NULL)
        device->backend->release_host(device, pointer);
    else
        free(pointer);
}

yoke_status yoke_device_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                               size_t bytes) {
    return device->backend->upload(device, stream, to, from, bytes);
}

yoke_status yoke_device_download(yoke_device *device, yoke_stream stream, void *to,
                                 const void *from, size_t bytes) {
    return device->backend->download(device, stream, to, from, bytes);
}

yoke_status yoke_device_copy(yoke_device *to_device, yoke_stream stream, void *to,
                             yoke_device *from_device, const void *from, size_t bytes) {
    return to_device->backend->copy(to_device, stream, to, from_device, from, bytes);
}

yoke_status yoke_device_clear(yoke_device *device, yoke_stream stream, void *to, size_t bytes) {
    return device->backend->clear(device, stream, to, bytes);
}

bool yoke_device_reaches(const yoke_device *device, const yoke_device *other) {
    return device->backend == other->backend && device->backend->reaches(device, other);
}

/* Order. */

yoke_status yoke_device_synchronize(yoke_device *device) {
    return device->backend->synchronize(device);
}

yoke_status yoke_device_event_create(yoke_device_event **event, yoke_device *device) {
    *event = NULL;
    return device->backend->shares_memory ? YOKE_OK : device->backend->event_create(event, device);
}

void yoke_device_event_destroy(yoke_device_event *event) {
    if (event != NULL) event->device->backend->event_destroy(event);
}

yoke_status yoke_device_event_record(yoke_device_event *event, yoke_stream stream) {
    return event == NULL ? YOKE_OK : event->device->backend->event_record(event, stream);
}

yoke_status yoke_device_event_wait(yoke_device_event *event, yoke_device *device,
                                   yoke_stream stream) {
    return event == NULL ? YOKE_OK : device->backend->event_wait(event, device, stream);
}

yoke_status yoke_device_event_synchronize(yoke_device_event *event) {
    return event == NULL ? YOKE_OK : event->device->backend->event_synchronize(event);
}

bool yoke_device_records(const yoke_device *device) {
    return device->backend->record_begin != NULL;
}

yoke_status yoke_recording_begin(yoke_device *device) {
    return device->backend->record_begin(device);
}

yoke_status yoke_recording_end(yoke_device *device, yoke_status status,
                               yoke_recording **recording) {
    *recording = NULL;
    yoke_error error = yoke_error_take(status);
    yoke_status ended = device->backend->record_end(device, recording);
    if (status == YOKE_OK) return ended;
    yoke_recording_destroy(*recording);
    *recording = NULL;
    return yoke_error_restore(&error);
}

yoke_status yoke_recording_run(yoke_recording *recording) {
    return recording->device->backend->record_run(recording);
}

void yoke_recording_destroy(yoke_recording *recording) {
    if (recording != NULL) recording->device->backend->record_destroy(recording);
}

yoke_status yoke_device_begin_step(yoke_device *device, const yoke_plan_step *step) {
    if (device->backend->begin_step == NULL) return YOKE_OK;
    return device->backend->begin_step(device, step);
}

/* Flat arithmetic. */

yoke_status yoke_device_sum(yoke_device *device, yoke_stream stream, float *to,
                            const float *const *from, int count, size_t elements) {
    return device->backend->sum(device, stream, to, from, count, elements);
}

#define SQUARE_SUM_BLOCK 4096

size_t yoke_square_sum_doubles(size_t elements) {
    return 1 + (elements + SQUARE_SUM_BLOCK - 1) / SQUARE_SUM_BLOCK;
}

yoke_status yoke_device_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                                   size_t elements, double *sum) {
    return device->backend->square_sum(device, stream, values, elements, sum);
}

yoke_status yoke_device_gate(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                             const yoke_gate_request *request) {
    return device->backend->gate(device, stream, gate, request);
}

yoke_status yoke_device_sgd(yoke_device *device, yoke_stream stream, const yoke_sgd_step *step,
                            float *weights, const float *gradients, float *velocity,
                            size_t elements) {
    return device->backend->sgd(device, stream, step, weights, gradients, velocity, elements);
}

yoke_status yoke_device_adamw(yoke_device *device, yoke_stream stream, const yoke_adamw_step *step,
                              float *weights, const float *gradients, float *const moments[2],
                              size_t elements) {
    return device->backend->adamw(device, stream, step, weights, gradients, moments, elements);
}

yoke_status yoke_device_shadow(yoke_device *device, uint16_t *shadow, const float *parameters,
                               size_t elements) {
    if (device->backend->shadow == NULL) return YOKE_OK;
    return device->backend->shadow(device, shadow, parameters, elements);
}

yoke_status yoke_device_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                                   const void *from) {
    return device->backend->accumulate(device, layout, to, from);
}

/* Layouts and plans. */

yoke_status yoke_layout_plain(yoke_device *device, const int64_t *shape, int rank,
                              yoke_layout *layout) {
    return device->backend->layout_plain(device, shape, rank, layout);
}

bool yoke_layout_equal(const yoke_layout *a, const yoke_layout *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

yoke_status yoke_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                                const yoke_layout *from_layout, const void *from) {
    return device->backend->layout_convert(device, to_layout, to, from_layout, from);
}

yoke_status yoke_plan_create(yoke_plan **plan, yoke_device *device,
                             const yoke_plan_request *request) {
    *plan = NULL;
    yoke_status status = device->backend->plan(plan, device, request);
    if (status == YOKE_OK) return YOKE_OK;
    yoke_plan_destroy(*plan);
    *plan = NULL;
    yoke_error_prefix("%s", request->operation->name != NULL ? request->operation->name : "?");
    return status;
}

void yoke_plan_destroy(yoke_plan *plan) {
    if (plan != NULL) plan->destroy(plan);
}

const yoke_plan_needs *yoke_plan_describe(const yoke_plan *plan) {
    return &plan->needs;
}

yoke_status yoke_plan_bind(yoke_plan *plan, const yoke_plan_binding *binding) {
    return plan->bind(plan, binding);
}

yoke_status yoke_plan_forward(yoke_plan *plan, const yoke_plan_step *step) {
    return plan->forward(plan, step);
}

yoke_status yoke_plan_backward(yoke_plan *plan, const yoke_plan_step *step) {
    return plan->backward(plan, step);
}
