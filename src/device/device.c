/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the devices that a list names. The only file that names a backend. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/backend.h"
#include "device/device_list.h"

#define THREADS_LIMIT 1024

struct yoke_devices {
    int count, spare_cores;
    cpu_set_t cores; /* that the devices may use */
    bool limited;    /* to these, by the host program */
    /* Behind the `count` devices of the list: spares, which could take the place of one that is
     * left out; then those that are left out, until all are closed. */
    int spares, left_out;
    yoke_device *at[YOKE_DEVICES_LIMIT];
    bool stays_open;
    const void *kept; /* whatever else must live as long as they stay open; NULL: nothing */
};

/* Backends. */

#ifndef YOKE_HAS_CUDA
static bool describe_cuda(yoke_backend_info *info) {
    info->name = "cuda";
    info->detail = "not in this build";
    return false;
}
#endif

static const struct {
    const char *name;
    const yoke_backend *(*table)(void); /* NULL: not in this build */
    bool (*describe)(yoke_backend_info *info);
    uint64_t (*automatic)(void); /* bit i: "auto" opens device i; NULL: none */
} backends[] = {
    {"cpu", yoke_cpu_backend, yoke_cpu_describe, NULL},
#ifdef YOKE_HAS_CUDA
    {"cuda", yoke_cuda_backend, yoke_cuda_describe, yoke_cuda_usable},
#else
    {"cuda", NULL, describe_cuda, NULL},
#endif
};
enum { BACKEND_COUNT = sizeof backends / sizeof backends[0] };

bool yoke_backend_describe(int index, yoke_backend_info *info) {
    if (index < 0 || index >= BACKEND_COUNT) return false;
    yoke_backend_info own = {.struct_size = sizeof own};
    own.available = backends[index].describe(&own);
    return yoke_options_store(info, &own, sizeof own, "yoke_backend_info") == YOKE_OK;
}

/* Cores. */

int yoke_cores_allowed(cpu_set_t *cores) {
    CPU_ZERO(cores);
    if (sched_getaffinity(0, sizeof *cores, cores) != 0) CPU_SET(0, cores);
    return CPU_COUNT(cores);
}

size_t yoke_cores_at(const cpu_set_t *cores, int position) {
    size_t core = 0;
    for (int left = position; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, cores) && left-- == 0) break;
    }
    return core;
}

/* Devices. */

static bool is_entry(const yoke_device_list *list, int index, int like) {
    return list->entries[index].backend == list->entries[like].backend &&
           list->entries[index].ordinal == list->entries[like].ordinal;
}

/* 0: the backend divides the cores by the number of devices. */
static int threads_of(const yoke_devices *devices, const yoke_devices_options *options) {
    if (options->threads > 0 || options->shards <= 0) return options->threads;
    int share = CPU_COUNT(&devices->cores) / options->shards;
    return share > 0 ? share : 1;
}

static yoke_status open_one(yoke_devices *devices, const yoke_devices_options *options,
                            const yoke_device_list *list) {
    int index = devices->count, processes = options->local_world > 1 ? options->local_world : 1;
    int backend = list->entries[index].backend;
    if (backends[backend].table == NULL)
        return FAIL(YOKE_ERROR_DEVICE,
                    "device \"%s\": this build has no %s backend; use \"cpu\" or \"4xcpu\"",
                    backends[backend].name, backends[backend].name);
    if (backend != list->entries[0].backend)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "device list \"%s\": %s and %s devices cannot share one model; list one kind",
                    options->list, backends[list->entries[0].backend].name, backends[backend].name);
    if (list->variants != 0 && backends[backend].table()->shares_memory)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "device list \"%s\": variants are for GPUs; leave them out for %s devices",
                    options->list, backends[backend].name);
    char name[sizeof devices->at[0]->name];
    /* "cuda:0"; where the list repeats a device "cuda:0#0", "cuda:0#1": names are unique. */
    size_t size = sizeof name;
    int before = 0, all = 0;
    for (int i = 0; i < list->count; i++) {
        before += i < index && is_entry(list, i, index);
        all += is_entry(list, i, index);
    }
    int length = snprintf(name, size, "%s:%d", backends[list->entries[index].backend].name,
                          list->entries[index].ordinal);
    if (all > 1) snprintf(name + length, size - (size_t)length, "#%d", before);
    yoke_backend_open request = {.index = index,
                                 .count = list->count * processes,
                                 .ordinal = list->entries[index].ordinal,
                                 .name = name,
                                 .threads = threads_of(devices, options),
                                 .unbound = options->unbound,
                                 .cores = devices->limited ? &devices->cores : NULL};
    TRY(backends[backend].table()->open(&devices->at[index], &request));
    pthread_mutex_init(&devices->at[index]->pinned_turn, NULL);
    if (!devices->at[index]->backend->shares_memory)
        devices->at[index]->variants = list->variants | yoke_variants_confirmed();
    devices->at[index]->number = index;
    devices->count++;
    devices->spare_cores -= devices->at[index]->threads * processes;
    return YOKE_OK;
}

/* "auto" means all usable devices of the last backend that has any, otherwise one CPU device. */
static void choose_devices(yoke_device_list *list) {
    for (int backend = 0; backend < BACKEND_COUNT; backend++) {
        uint64_t usable = backends[backend].automatic != NULL ? backends[backend].automatic() : 0;
        if (usable == 0) continue;
        list->count = 0;
        for (int i = 0; i < YOKE_DEVICES_LIMIT; i++) {
            if (!(usable >> i & 1)) continue;
            list->entries[list->count].backend = backend;
            list->entries[list->count++].ordinal = i;
        }
    }
}

static yoke_status keep_local_rank(yoke_device_list *list, const yoke_devices_options *options) {
    int rank = options->local_rank, world = options->local_world;
    if (world == 0 && rank == 0) return YOKE_OK;
    if (world < 1 || rank < 0 || rank >= world)
        return FAIL(YOKE_ERROR_ARGUMENT, "local_rank %d of %d: must be 0 to local_world - 1", rank,
                    world);
    list->entries[0] = list->entries[rank % list->count];
    list->count = 1;
    const yoke_backend *(*table)(void) = backends[list->entries[0].backend].table;
    if (table != NULL && table()->shares_memory) list->entries[0].ordinal = rank;
    return YOKE_OK;
}

static yoke_status choose_cores(yoke_devices *devices, const yoke_devices_options *options) {
    cpu_set_t allowed;
    yoke_cores_allowed(&allowed);
    devices->cores = allowed;
    devices->limited = options->cores != NULL;
    if (devices->limited) TRY(yoke_core_list_choose(options->cores, &allowed, &devices->cores));
    devices->spare_cores = CPU_COUNT(&devices->cores);
    return YOKE_OK;
}

static yoke_status build_devices(yoke_devices *devices, const yoke_devices_options *options) {
    if (options->threads < 0 || options->threads > THREADS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%d threads per device: must be 1 to %d, or 0 to share the cores",
                    options->threads, THREADS_LIMIT);
    yoke_device_list list;
    const char *names[BACKEND_COUNT];
    for (int i = 0; i < BACKEND_COUNT; i++)
        names[i] = backends[i].name;
    TRY(yoke_device_list_parse(&list, options->list != NULL ? options->list : "auto", names,
                               BACKEND_COUNT));
    if (list.automatic) choose_devices(&list);
    TRY(keep_local_rank(&list, options));
    TRY(choose_cores(devices, options));
    while (devices->count < list.count)
        TRY(open_one(devices, options, &list));
    const yoke_backend *backend = devices->at[0]->backend;
    return backend->connect != NULL ? backend->connect(devices->at, devices->count) : YOKE_OK;
}

yoke_status yoke_devices_open(yoke_devices **devices, const yoke_devices_options *options) {
    TRY(yoke_pointer_check(devices, "devices"));
    *devices = NULL;
    yoke_devices_options own = {0};
    TRY(yoke_options_load(&own, sizeof own, options, "yoke_devices_options"));
    yoke_devices *opened = yoke_calloc(1, sizeof *opened);
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
    if (devices->stays_open) return;
    devices->count += devices->spares + devices->left_out;
    while (devices->count > 0) {
        yoke_device *device = devices->at[--devices->count];
        pthread_mutex_destroy(&device->pinned_turn);
        device->backend->close(device);
    }
    yoke_free(devices);
}

void yoke_devices_stay_open(yoke_devices *devices, const void *kept) {
    devices->stays_open = true;
    devices->kept = kept;
}

bool yoke_devices_are_kept(const yoke_devices *devices) {
    return devices != NULL && devices->stays_open;
}

void yoke_devices_leave_out(yoke_devices *devices, int index) {
    yoke_device *lost = devices->at[index];
    int last = devices->count + devices->spares + devices->left_out - 1;
    memmove(&devices->at[index], &devices->at[index + 1],
            (size_t)(last - index) * sizeof(yoke_device *));
    for (int i = index; i < last; i++)
        devices->at[i]->index = i;
    devices->count += devices->spares - 1;
    devices->spares = 0;
    devices->spare_cores += lost->threads;
    devices->at[last] = lost;
    devices->left_out++;
}

void yoke_devices_use(yoke_devices *devices, int count) {
    devices->spares += devices->count - count;
    devices->count = count;
}

int yoke_devices_count(const yoke_devices *devices) {
    return devices != NULL ? devices->count : 0;
}

const char *yoke_devices_note(const yoke_devices *devices) {
    const char *note = devices != NULL ? devices->at[0]->backend->note : NULL;
    return note != NULL ? note : "";
}

yoke_status yoke_devices_synchronize(const yoke_devices *devices) {
    TRY(yoke_pointer_check(devices, "devices"));
    if (yoke_devices_share_memory(devices))
        return YOKE_OK; /* their calls finish before they return */
    for (int i = 0; i < devices->count; i++) {
        yoke_device_scope scope;
        TRY(yoke_device_enter(devices->at[i], false, &scope));
        yoke_status status = yoke_device_synchronize(devices->at[i]);
        yoke_device_leave(devices->at[i], &scope);
        TRY(status);
    }
    return YOKE_OK;
}

yoke_status yoke_devices_describe(const yoke_devices *devices, int index, yoke_device_info *info) {
    TRY(yoke_pointer_check(devices, "devices"));
    if (index < 0 || index >= devices->count)
        return FAIL(YOKE_ERROR_ARGUMENT, "device %d: the list has %d, counted from 0", index,
                    devices->count);
    const yoke_device *device = devices->at[index];
    yoke_device_info own = {.struct_size = sizeof own, .threads = device->threads};
    memcpy(own.name, device->name, sizeof own.name);
    own.bfloat16 = yoke_device_supports(device, YOKE_BFLOAT16);
    yoke_variants_write(device->variants, own.variants, sizeof own.variants);
    device->backend->describe(device, &own);
    return yoke_options_store(info, &own, sizeof own, "yoke_device_info");
}

void yoke_device_facts(const yoke_device *device, char *text, size_t size) {
    yoke_device_info info = {.struct_size = sizeof info};
    yoke_backend_info backend = {.struct_size = sizeof backend};
    device->backend->describe(device, &info);
    for (int i = 0; yoke_backend_describe(i, &backend); i++)
        if (strcmp(backend.name, device->backend->name) == 0) break;
    char variants[YOKE_VARIANTS_BYTES];
    yoke_variants_write(device->variants, variants, sizeof variants);
    snprintf(text, size, "yoke %d.%d.%d, %s%s, %s", YOKE_VERSION_MAJOR, YOKE_VERSION_MINOR,
             YOKE_VERSION_PATCH, info.description, variants, backend.detail);
    for (char *at = text; *at != '\0'; at++)
        if (*at == '\t' || *at == '\n') *at = ' ';
}

yoke_device *yoke_devices_at(const yoke_devices *devices, int index) {
    return devices->at[index];
}

const char *yoke_device_name(const yoke_device *device) {
    return device->name;
}

int yoke_device_number(const yoke_device *device) {
    return device->number;
}

int yoke_device_node(const yoke_device *device) {
    return device->node;
}

bool yoke_device_supports(const yoke_device *device, yoke_precision precision) {
    return device->backend->supports(device, precision);
}

int yoke_device_threads(const yoke_device *device) {
    return device->threads;
}

unsigned yoke_device_variants(const yoke_device *device) {
    return device->variants;
}

bool yoke_devices_continue(const yoke_devices *devices) {
    return devices->at[0]->backend->continues;
}

bool yoke_devices_share_memory(const yoke_devices *devices) {
    return yoke_device_shares_memory(devices->at[0]);
}

bool yoke_device_shares_memory(const yoke_device *device) {
    return device->backend->shares_memory;
}

int yoke_devices_spare_cores(const yoke_devices *devices) {
    return devices->spare_cores;
}

int yoke_devices_cores(const yoke_devices *devices) {
    cpu_set_t own;
    if (devices != NULL && devices->limited) return CPU_COUNT(&devices->cores);
    return yoke_cores_allowed(&own);
}

void yoke_devices_keep_thread(const yoke_devices *devices) {
    if (devices == NULL || !devices->limited) return;
    (void)sched_setaffinity(0, sizeof devices->cores, &devices->cores);
}

yoke_status yoke_device_enter(yoke_device *device, bool bind, yoke_device_scope *scope) {
    return device->backend->enter(device, bind, scope);
}

void yoke_device_leave(yoke_device *device, const yoke_device_scope *scope) {
    device->backend->leave(device, scope);
}

yoke_status yoke_device_start_team(yoke_device *device) {
    return device->backend->start_team != NULL ? device->backend->start_team(device) : YOKE_OK;
}

void yoke_device_end_team(yoke_device *device) {
    if (device->backend->end_team != NULL) device->backend->end_team(device);
}

void yoke_device_hold_signals(yoke_device *device) {
    if (device->backend->hold_signals != NULL) device->backend->hold_signals(device);
}

void yoke_device_release_signals(yoke_device *device) {
    if (device->backend->release_signals != NULL) device->backend->release_signals(device);
}

yoke_status yoke_device_use(yoke_device *device) {
    return device->backend->use(device);
}

void yoke_device_step_out(yoke_device *device, const yoke_device_scope *scope) {
    device->backend->step_out(device, scope);
}

const char *yoke_activation_name(yoke_activation activation) {
    static const char *const names[YOKE_ACTIVATIONS] = {
        [YOKE_RELU] = "relu", [YOKE_RELU6] = "relu6",
        [YOKE_GELU] = "gelu", [YOKE_GELU_TANH] = "gelu_tanh",
        [YOKE_SILU] = "silu", [YOKE_SIGMOID] = "sigmoid",
        [YOKE_TANH] = "tanh"};
    return names[activation];
}

const char *yoke_precision_name(yoke_precision precision) {
    return yoke_precision_names[precision];
}
