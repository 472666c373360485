/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU as N devices: each has its own memory, a share of the cores, and threads to use them. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/cpu/cpu.h"
#include "device/cpu/factors.h"
#include "device/cpu/nodes.h"
#include "device/cpu/processor.h"
#include "device/cpu/rounded.h"

/* Life. */

static void cpu_close(yoke_device *device) {
    if (device == NULL) return;
    cpu_device *cpu = cpu_of(device);
    cpu_conversions_clear(cpu);
    cpu_descs_clear(&cpu->descs);
    if (cpu->stream != NULL) dnnl_stream_destroy(cpu->stream);
    if (cpu->engine != NULL) dnnl_engine_destroy(cpu->engine);
    yoke_free(cpu);
}

/* The devices of all processes of a list share the cores. */
static void choose_cores(cpu_device *cpu, const yoke_backend_open *request,
                         const cpu_set_t *allowed) {
    const cpu_teams teams = {.count = request->count, .threads = cpu->base.threads};
    cpu_nodes nodes;
    CPU_ZERO(&cpu->cores);
    cpu->base.node = YOKE_NO_NODE;
    cpu->limited = request->cores != NULL;
    cpu->spread = !request->unbound;
    if (request->unbound && !cpu->limited) return;
    cpu_nodes_read(&nodes, CPU_NODES_ROOT, allowed);
    if (cpu->spread)
        cpu_teams_deal(&teams, request->ordinal, &nodes, allowed, &cpu->cores);
    else
        cpu->cores = *allowed;
    cpu_nodes_write(&nodes, &cpu->cores, cpu->nodes, sizeof cpu->nodes);
    cpu->base.node = cpu_nodes_of(&nodes, &cpu->cores);
}

static yoke_status cpu_build(cpu_device *cpu, const yoke_backend_open *request) {
    cpu_set_t allowed;
    int core_count = yoke_cores_allowed(&allowed);
    if (request->cores != NULL) {
        allowed = *request->cores;
        core_count = CPU_COUNT(&allowed);
    }
    int share = core_count / request->count > 0 ? core_count / request->count : 1;
    cpu->base.backend = yoke_cpu_backend();
    cpu->base.index = request->index;
    /* A oneDNN kernel waits for every thread of the team that it was created for, so the team may
     * not be larger than OpenMP allows. */
    cpu->base.threads = request->threads > 0 ? request->threads : share;
    if (cpu->base.threads > omp_get_thread_limit()) cpu->base.threads = omp_get_thread_limit();
    snprintf(cpu->base.name, sizeof cpu->base.name, "%s", request->name);
    choose_cores(cpu, request, &allowed);
    TRY(yoke_room_check());
    cpu_onednn_be_silent();
    TRY_DNNL(dnnl_engine_create(&cpu->engine, dnnl_cpu, 0));
    TRY_DNNL(dnnl_stream_create(&cpu->stream, cpu->engine, dnnl_stream_default_flags));
    return YOKE_OK;
}

static yoke_status cpu_open(yoke_device **device, const yoke_backend_open *request) {
    *device = NULL;
    cpu_device *cpu = yoke_calloc(1, sizeof *cpu);
    if (cpu == NULL) return FAIL_MEMORY(sizeof *cpu, "a device");
    yoke_status status = cpu_build(cpu, request);
    if (status != YOKE_OK) {
        cpu_close(&cpu->base);
        return status;
    }
    *device = &cpu->base;
    return YOKE_OK;
}

static size_t memory_bytes(void) {
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (size_t)pages * (size_t)page_bytes : 0;
}

static void cpu_describe(const yoke_device *device, yoke_device_info *info) {
    const cpu_device *cpu = (const cpu_device *)device;
    const cpu_set_t *cores = &cpu->cores;
    FILE *file = fopen("/proc/cpuinfo", "re");
    cpu_processor_name(file, info->description, sizeof info->description);
    if (file != NULL) fclose(file);
    info->core_count = CPU_COUNT(cores);
    info->first_core = info->core_count > 0 ? (int)yoke_cores_at(cores, 0) : -1;
    yoke_core_list_write(cores, info->cores, sizeof info->cores);
    memcpy(info->nodes, cpu->nodes, sizeof info->nodes);
    info->memory_bytes = memory_bytes();
}

static bool cpu_supports(const yoke_device *device, yoke_precision precision) {
    (void)device;
    return precision == YOKE_FLOAT32 || precision == YOKE_FLOAT16 ||
           (precision == YOKE_BFLOAT16 && cpu_computes_bfloat16());
}

/* The worker's scope. */

typedef struct cpu_scope {
    cpu_set_t cores;
    int threads;
    bool bound, worker;
} cpu_scope;

_Static_assert(sizeof(cpu_scope) <= sizeof(yoke_device_scope), "a scope holds what enter changed");

/* Binds every compute thread of the team to one core of the set each, or to the whole set. The
 * team's threads persist between parallel regions, and so does the binding. */
static bool bind_team(int threads, const cpu_set_t *cores, bool one_each) {
    int failures = 0, count = CPU_COUNT(cores);
#pragma omp parallel num_threads(threads) reduction(+ : failures)
    {
        cpu_set_t own = *cores;
        if (one_each) {
            CPU_ZERO(&own);
            CPU_SET(yoke_cores_at(cores, omp_get_thread_num() % count), &own);
        }
        if (sched_setaffinity(0, sizeof own, &own) != 0) failures++;
    }
    return failures == 0;
}

static yoke_status cpu_enter(yoke_device *device, bool bind, yoke_device_scope *scope) {
    cpu_device *cpu = cpu_of(device);
    cpu_scope before = {.threads = omp_get_max_threads(),
                        .bound = (bind || cpu->limited) && CPU_COUNT(&cpu->cores) > 0,
                        .worker = bind};
    yoke_cores_allowed(&before.cores);
    memcpy(scope->opaque, &before, sizeof before);
    omp_set_num_threads(device->threads);
    if (bind && before.bound) cpu->bound = true;
    if (!before.bound || bind_team(device->threads, &cpu->cores, bind && cpu->spread))
        return YOKE_OK;
    cpu->base.backend->leave(device, scope);
    return FAIL(
        YOKE_ERROR_SYSTEM,
        "%s: the system does not allow binding threads to %d cores from core %zu; open the devices "
        "unbound",
        device->name, CPU_COUNT(&cpu->cores), yoke_cores_at(&cpu->cores, 0));
}

static void cpu_leave(yoke_device *device, const yoke_device_scope *scope) {
    cpu_scope before;
    memcpy(&before, scope->opaque, sizeof before);
    if (before.bound) {
        bind_team(device->threads, &before.cores, false);
        if (before.worker) cpu_of((yoke_device *)device)->bound = false;
    }
    omp_set_num_threads(before.threads);
}

/* The calling thread, thread 0 of the team; the others stay bound meanwhile. */
static yoke_status cpu_use(yoke_device *device) {
    const cpu_device *cpu = cpu_of(device);
    cpu_set_t own = cpu->cores;
    omp_set_num_threads(device->threads);
    if (!cpu->bound) return YOKE_OK;
    if (cpu->spread) {
        CPU_ZERO(&own);
        CPU_SET(yoke_cores_at(&cpu->cores, 0), &own);
    }
    (void)sched_setaffinity(0, sizeof own, &own); /* enter has shown that the system allows it */
    return YOKE_OK;
}

static void cpu_step_out(yoke_device *device, const yoke_device_scope *scope) {
    cpu_scope before;
    (void)device;
    memcpy(&before, scope->opaque, sizeof before);
    if (before.bound) (void)sched_setaffinity(0, sizeof before.cores, &before.cores);
    omp_set_num_threads(before.threads);
}

/* Memory. */

#define SMALL_ALIGNMENT ((size_t)64)
#define HUGE_PAGE_BYTES ((size_t)2 << 20)
#define DROPPED_BYTES ((uintptr_t)64 << 10) /* caches hold what is smaller */

/* OpenMP would allocate even a team of one. */
void cpu_clear(cpu_device *device, void *memory, size_t bytes) {
    size_t chunks = (bytes + HUGE_PAGE_BYTES - 1) / HUGE_PAGE_BYTES;
    if (bytes == 0) return;
    if (chunks == 1 || device->base.threads == 1) {
        memset(memory, 0, bytes);
        return;
    }
#pragma omp parallel for num_threads(device->base.threads) schedule(static)
    for (size_t i = 0; i < chunks; i++) {
        size_t from = i * HUGE_PAGE_BYTES, left = bytes - from;
        memset((char *)memory + from, 0, left < HUGE_PAGE_BYTES ? left : HUGE_PAGE_BYTES);
    }
}

/* malloc may give memory that another thread has written, whose pages lie on that one's node. The
 * system takes whole pages back, and who writes next gets new ones, near its core. */
static void drop_pages(void *memory, size_t bytes) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)memory + bytes) / page * page;
    if (end > from && end - from >= DROPPED_BYTES)
        madvise((void *)from, end - from, MADV_DONTNEED); /* where it cannot, pages stay */
}

static yoke_status cpu_allocate(yoke_device *device, size_t bytes, void **memory) {
    size_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : SMALL_ALIGNMENT;
    *memory = NULL;
    /* The system would grant more than it has, and kill the process when it writes there. */
    if (bytes > memory_bytes()) return FAIL_MEMORY(bytes, device->name);
    size_t rounded = bytes > 0 ? (bytes + alignment - 1) / alignment * alignment : alignment;
    *memory = yoke_aligned_alloc(alignment, rounded);
    if (*memory == NULL) return FAIL_MEMORY(bytes, device->name);
    if (yoke_room_check() != YOKE_OK) {
        yoke_free(*memory);
        *memory = NULL;
        return YOKE_ERROR_MEMORY;
    }
    drop_pages(*memory, rounded);
    if (alignment == HUGE_PAGE_BYTES) madvise(*memory, rounded, MADV_HUGEPAGE);
    /* The device's threads write every page now: the pages are then close to them, and no later
     * write faults. */
    cpu_clear(cpu_of(device), *memory, rounded);
    return YOKE_OK;
}

static void cpu_release(yoke_device *device, void *pointer) {
    (void)device;
    yoke_free(pointer);
}

static yoke_status cpu_upload(yoke_device *device, yoke_stream stream, void *to, const void *from,
                              size_t bytes) {
    (void)device, (void)stream;
    memcpy(to, from, bytes);
    return YOKE_OK;
}

static yoke_status cpu_copy(yoke_device *to_device, yoke_stream stream, void *to,
                            yoke_device *from_device, const void *from, size_t bytes) {
    (void)to_device, (void)stream, (void)from_device;
    memcpy(to, from, bytes);
    return YOKE_OK;
}

static yoke_status cpu_zero(yoke_device *device, yoke_stream stream, void *to, size_t bytes) {
    (void)stream;
    cpu_clear(cpu_of(device), to, bytes);
    return YOKE_OK;
}

static yoke_peer_path cpu_path(const yoke_device *device, const yoke_device *other) {
    (void)device, (void)other;
    return YOKE_PEER_SAME;
}

static yoke_status cpu_synchronize(yoke_device *device) {
    TRY_DNNL(dnnl_stream_wait(cpu_of(device)->stream));
    return YOKE_OK;
}

/* Layouts and plans. */

static yoke_status cpu_layout_plain(yoke_device *device, const int64_t *shape, int ndim,
                                    yoke_layout *layout) {
    const cpu_desc *desc = NULL;
    dnnl_dims_t dims = {0};
    for (int i = 0; i < ndim; i++)
        dims[i] = shape[i];
    TRY_DNNL(cpu_desc_by_strides(&desc, &cpu_of(device)->descs, ndim, dims, dnnl_f32, NULL));
    cpu_layout_store(layout, desc);
    return YOKE_OK;
}

static yoke_status cpu_plan(yoke_plan **plan, yoke_device *device,
                            const yoke_plan_request *request) {
    if (!cpu_supports(device, request->precision))
        return FAIL(YOKE_ERROR_DEVICE, "%s: the processor does not compute in %s; use float32",
                    device->name, yoke_precision_name(request->precision));
    static cpu_planner *const planners[] = {
        [YOKE_OP_CONV2D] = cpu_plan_convolution,
        [YOKE_OP_CONV_TRANSPOSE2D] = cpu_plan_transposed_convolution,
        [YOKE_OP_LINEAR] = cpu_plan_linear,
        [YOKE_OP_BATCH_NORM] = cpu_plan_batch_norm,
        [YOKE_OP_LAYER_NORM] = cpu_plan_layer_norm,
        [YOKE_OP_ACTIVATION] = cpu_plan_activation,
        [YOKE_OP_ADD] = cpu_plan_add,
        [YOKE_OP_MULTIPLY] = cpu_plan_multiply,
        [YOKE_OP_CONCAT] = cpu_plan_concat,
        [YOKE_OP_SOFTMAX] = cpu_plan_softmax,
        [YOKE_OP_MAX_POOL] = cpu_plan_pooling,
        [YOKE_OP_AVERAGE_POOL] = cpu_plan_pooling,
        [YOKE_OP_FLATTEN] = cpu_plan_reshape,
        [YOKE_OP_SEQUENCE] = cpu_plan_reshape,
        [YOKE_OP_EMBEDDING] = cpu_plan_embedding,
        [YOKE_OP_POSITIONS] = cpu_plan_positions,
        [YOKE_OP_DROPOUT] = cpu_plan_dropout,
        [YOKE_OP_CLASS_TOKEN] = cpu_plan_class_token,
        [YOKE_OP_SELECT] = cpu_plan_select,
        [YOKE_OP_RECURRENCE] = cpu_plan_recurrence,
        [YOKE_OP_ATTENTION] = cpu_plan_attention,
        [YOKE_OP_OUTPUT] = cpu_plan_reshape,
        [YOKE_OP_CROSS_ENTROPY] = cpu_plan_loss,
        [YOKE_OP_MSE] = cpu_plan_loss,
        [YOKE_OP_BCE] = cpu_plan_loss,
        [YOKE_OP_HUBER] = cpu_plan_loss,
        [YOKE_OP_OUTPUT_LOSS] = cpu_plan_loss,
        [YOKE_OP_EXPRESSION] = cpu_plan_expression,
        [YOKE_OP_REDUCE] = cpu_plan_reduction,
        [YOKE_OP_RESHAPE] = cpu_plan_row_shape,
        [YOKE_OP_MOVE] = cpu_plan_move,
        [YOKE_OP_MATMUL] = cpu_plan_matmul,
        [YOKE_OP_PARAMETER] = cpu_plan_parameter,
        [YOKE_OP_CONSTANT] = cpu_plan_constant,
        [YOKE_OP_INPUT] = NULL,
        [YOKE_OP_HOST] = cpu_plan_host,
        [YOKE_OP_CONTINUED_POSITIONS] = cpu_plan_continued_positions,
        [YOKE_OP_CONTINUED_ATTENTION] = cpu_plan_continued_attention};
    const yoke_operation *operation = request->operation;
    cpu_planner *planner = planners[operation->kind];
    if (planner == NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "operation %d has no plan", (int)operation->kind);
    if (operation->kind == YOKE_OP_MULTIPLY && operation->by_channel)
        planner = cpu_plan_channel_scale;
    yoke_plan_request own = *request; /* replace the root's layouts by this device's equals */
    for (int i = 0; i < YOKE_PLAN_INPUTS; i++)
        TRY(cpu_layout_adopt(&own.inputs[i], cpu_of(device)));
    for (int i = 0; i < YOKE_PLAN_PARAMETERS; i++)
        TRY(cpu_layout_adopt(&own.parameters[i], cpu_of(device)));
    TRY(cpu_layout_adopt(&own.added, cpu_of(device)));
    return own.precision == YOKE_FLOAT16 ? cpu_plan_float16(plan, cpu_of(device), &own, planner)
                                         : planner(plan, cpu_of(device), &own);
}

const yoke_backend *yoke_cpu_backend(void) {
    static const yoke_backend table = {
        .name = "cpu",
        .shares_memory = true,
        .continues = true,
        .note = "oneDNN prints nothing in this process: dnnl_set_verbose(1) lets it print again",
        .open = cpu_open,
        .close = cpu_close,
        .describe = cpu_describe,
        .supports = cpu_supports,
        .enter = cpu_enter,
        .leave = cpu_leave,
        .start_team = cpu_start_team,
        .end_team = cpu_end_team,
        .use = cpu_use,
        .step_out = cpu_step_out,
        .hold_signals = cpu_hold_signals,
        .release_signals = cpu_release_signals,
        .allocate = cpu_allocate,
        .release = cpu_release,
        .upload = cpu_upload,
        .download = cpu_upload,
        .copy = cpu_copy,
        .clear = cpu_zero,
        .path = cpu_path,
        .synchronize = cpu_synchronize,
        .sum = cpu_sum,
        .sum_subtrees = cpu_sum_subtrees,
        .square_sum = cpu_square_sum,
        .check_finite = cpu_check_finite,
        .update = cpu_update,
        .rescale = cpu_rescale,
        .product = cpu_product,
        .shadow = cpu_shadow,
        .accumulate = cpu_accumulate,
        .sum_factors = cpu_sum_factors,
        .layout_plain = cpu_layout_plain,
        .layout_convert = cpu_layout_convert,
        .plan = cpu_plan,
    };
    return &table;
}
