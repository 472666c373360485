/* SPDX-License-Identifier: Apache-2.0 */
/* What all operations use of oneDNN: errors, layouts, calls with bound arguments, reorders,
 * primitives. */
#include <dnnl_debug.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* Errors. */

static const struct {
    dnnl_status_t from;
    yoke_status to;
    const char *text;
} dnnl_failures[] = {
    {dnnl_out_of_memory, YOKE_ERROR_MEMORY, "out of memory"},
    {dnnl_unimplemented, YOKE_ERROR_DEVICE, "not implemented for this processor"},
    {dnnl_runtime_error, YOKE_ERROR_SYSTEM, "failed while running"},
};

yoke_status cpu_dnnl_failed(dnnl_status_t status, const char *call) {
    int name_length = (int)strcspn(call, "(");
    for (size_t i = 0; i < sizeof dnnl_failures / sizeof dnnl_failures[0]; i++) {
        if (dnnl_failures[i].from == status)
            return FAIL(dnnl_failures[i].to, "oneDNN: %.*s: %s", name_length, call,
                        dnnl_failures[i].text);
    }
    return FAIL(YOKE_ERROR_INTERNAL, "oneDNN: %.*s: %s", name_length, call,
                dnnl_status2str(status));
}

/* Layouts. */

void cpu_layout_store(yoke_layout *layout, const cpu_desc *desc) {
    memset(layout, 0, sizeof *layout);
    layout->bytes = desc->bytes;
    layout->opaque[0] = desc->digest;
    layout->descriptor = desc;
}

yoke_status cpu_layout_adopt(yoke_layout *layout, cpu_device *device) {
    if (layout->descriptor == NULL) return YOKE_OK;
    const cpu_desc *desc = NULL;
    TRY_DNNL(cpu_desc_copy(&desc, &device->descs, layout->descriptor));
    layout->descriptor = desc;
    return YOKE_OK;
}

const cpu_desc *cpu_layout_desc(const yoke_layout *layout) {
    return layout->descriptor;
}

yoke_status cpu_value_desc(const cpu_desc **desc, cpu_device *device, int rows, yoke_dims dims,
                           dnnl_data_type_t type, dnnl_format_tag_t tag) {
    dnnl_dims_t shape = {0};
    yoke_dims_shape(dims, rows, shape);
    TRY_DNNL(cpu_desc_by_tag(desc, &device->descs, 4, shape, type, tag));
    return YOKE_OK;
}

dnnl_data_type_t cpu_data_type(yoke_precision precision) {
    return precision == YOKE_BFLOAT16 ? dnnl_bf16 : dnnl_f32;
}

/* Calls. */

/* Appends argument `index`: a memory object at `address`. */
static yoke_status add_argument(cpu_call *call, cpu_device *device, int index, const cpu_desc *desc,
                                void *address) {
    if (call->count == CPU_CALL_ARGUMENTS)
        return FAIL(YOKE_ERROR_INTERNAL, "a call has more than %d arguments", CPU_CALL_ARGUMENTS);
    dnnl_exec_arg_t *argument = &call->arguments[call->count];
    TRY_DNNL(dnnl_memory_create(&argument->memory, desc->onednn, device->engine, address));
    argument->arg = index;
    call->count++;
    return YOKE_OK;
}

yoke_status cpu_call_run(const cpu_call *call, cpu_device *device) {
    if (call->primitive == NULL) return YOKE_OK;
    TRY_DNNL(dnnl_primitive_execute(call->primitive, device->stream, call->count, call->arguments));
    return YOKE_OK;
}

/* Drops the memory objects, keeps the primitive. */
static void unbind(cpu_call *call) {
    for (int i = 0; i < call->count; i++)
        dnnl_memory_destroy(call->arguments[i].memory);
    call->count = 0;
}

void cpu_call_destroy(cpu_call *call) {
    unbind(call);
    yoke_free(call->scratch);
    if (call->primitive != NULL) dnnl_primitive_destroy(call->primitive);
    memset(call, 0, sizeof *call);
}

static yoke_status bind_reorder_scratch(cpu_call *call, cpu_device *device,
                                        const_dnnl_primitive_desc_t description) {
    const cpu_desc *desc = NULL;
    TRY_DNNL(cpu_desc_of_argument(&desc, &device->descs, description, DNNL_ARG_SCRATCHPAD));
    if (desc == NULL || desc->bytes == 0) return YOKE_OK;
    call->scratch = yoke_aligned_alloc(CPU_LINE, cpu_align(desc->bytes, CPU_LINE));
    if (call->scratch == NULL) return FAIL_MEMORY(desc->bytes, "a conversion of layouts");
    return add_argument(call, device, DNNL_ARG_SCRATCHPAD, desc, call->scratch);
}

yoke_status cpu_plan_plain_output(yoke_plan *plan, const yoke_plan_request *request,
                                  dnnl_data_type_t type) {
    const cpu_desc *output = NULL;
    TRY(cpu_value_desc(&output, cpu_of(plan->device), request->rows, request->operation->output,
                       type, dnnl_nchw));
    cpu_layout_store(&plan->needs.output, output);
    return YOKE_OK;
}

yoke_status cpu_reorder_check(cpu_device *device, const cpu_desc *from, const cpu_desc *to) {
    dnnl_primitive_desc_t description = NULL;
    TRY_DNNL(cpu_reorder_describe(&description, device->engine, from, to));
    dnnl_primitive_desc_destroy(description);
    return YOKE_OK;
}

yoke_status cpu_reorder(cpu_call *call, cpu_device *device, const cpu_desc *from,
                        void *from_address, const cpu_desc *to, void *to_address) {
    if (from == to) return YOKE_OK;
    dnnl_primitive_desc_t description = NULL;
    TRY(yoke_room_check());
    TRY_DNNL(cpu_reorder_describe(&description, device->engine, from, to));
    dnnl_status_t made = dnnl_primitive_create(&call->primitive, description);
    yoke_status status = made == dnnl_success
                             ? YOKE_OK
                             : cpu_dnnl_failed(made, "dnnl_primitive_create of a reorder");
    if (status == YOKE_OK) status = add_argument(call, device, DNNL_ARG_FROM, from, from_address);
    if (status == YOKE_OK) status = add_argument(call, device, DNNL_ARG_TO, to, to_address);
    if (status == YOKE_OK) status = bind_reorder_scratch(call, device, description);
    dnnl_primitive_desc_destroy(description);
    return status;
}

/* Primitives. */

static const int known_arguments[CPU_PRIMITIVE_ARGUMENTS] = {
    DNNL_ARG_SRC,       DNNL_ARG_SRC_1,      DNNL_ARG_WEIGHTS,      DNNL_ARG_BIAS,
    DNNL_ARG_DST,       DNNL_ARG_MEAN,       DNNL_ARG_VARIANCE,     DNNL_ARG_SCALE,
    DNNL_ARG_SHIFT,     DNNL_ARG_DIFF_SRC,   DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_BIAS,
    DNNL_ARG_DIFF_DST,  DNNL_ARG_DIFF_SCALE, DNNL_ARG_DIFF_SHIFT,   DNNL_ARG_WORKSPACE,
    DNNL_ARG_SCRATCHPAD};

yoke_status cpu_primitive_create(cpu_primitive *primitive, cpu_device *device,
                                 const cpu_operation *operation) {
    TRY(yoke_room_check());
    TRY_DNNL(cpu_operation_describe(&primitive->description, device->engine, operation));
    TRY_DNNL(dnnl_primitive_create(&primitive->call.primitive, primitive->description));
    for (int i = 0; i < CPU_PRIMITIVE_ARGUMENTS; i++)
        TRY_DNNL(cpu_desc_of_argument(&primitive->descs[i], &device->descs, primitive->description,
                                      known_arguments[i]));
    return YOKE_OK;
}

void cpu_primitive_destroy(cpu_primitive *primitive) {
    cpu_call_destroy(&primitive->call);
    if (primitive->description != NULL) dnnl_primitive_desc_destroy(primitive->description);
    memset(primitive, 0, sizeof *primitive);
}

const cpu_desc *cpu_primitive_desc(const cpu_primitive *primitive, int argument) {
    for (int i = 0; i < CPU_PRIMITIVE_ARGUMENTS; i++)
        if (known_arguments[i] == argument) return primitive->descs[i];
    return NULL;
}

size_t cpu_primitive_bytes(const cpu_primitive *primitive, int argument) {
    const cpu_desc *desc = cpu_primitive_desc(primitive, argument);
    return desc != NULL ? desc->bytes : 0;
}

size_t cpu_primitive_scratch(const cpu_primitive *primitive) {
    return cpu_primitive_bytes(primitive, DNNL_ARG_SCRATCHPAD);
}

static yoke_status bind_argument(cpu_primitive *primitive, cpu_device *device, int argument,
                                 void *address) {
    const cpu_desc *desc = cpu_primitive_desc(primitive, argument);
    if (desc == NULL)
        return FAIL(YOKE_ERROR_INTERNAL, "oneDNN: a primitive has no argument %d", argument);
    return add_argument(&primitive->call, device, argument, desc, address);
}

yoke_status cpu_primitive_bind(cpu_primitive *primitive, cpu_device *device,
                               const cpu_address *addresses, void *scratch) {
    unbind(&primitive->call);
    for (; addresses->argument >= 0; addresses++) {
        if (addresses->argument == 0) continue;
        TRY(bind_argument(primitive, device, addresses->argument, addresses->address));
    }
    if (cpu_primitive_scratch(primitive) == 0) return YOKE_OK;
    return bind_argument(primitive, device, DNNL_ARG_SCRATCHPAD, scratch);
}

yoke_status cpu_primitive_plan_forward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return cpu_call_run(&((cpu_primitive_plan *)plan)->forward.call, cpu_of(plan->device));
}

yoke_status cpu_primitive_plan_backward(yoke_plan *plan, const yoke_plan_step *step) {
    (void)step;
    return cpu_call_run(&((cpu_primitive_plan *)plan)->backward.call, cpu_of(plan->device));
}

void cpu_primitive_plan_destroy(yoke_plan *plan) {
    cpu_primitive_destroy(&((cpu_primitive_plan *)plan)->forward);
    cpu_primitive_destroy(&((cpu_primitive_plan *)plan)->backward);
    yoke_free(plan);
}

size_t cpu_primitive_plan_scratch(const cpu_primitive_plan *plan) {
    size_t forward = cpu_primitive_scratch(&plan->forward);
    size_t backward = cpu_primitive_scratch(&plan->backward);
    return forward > backward ? forward : backward;
}

/* Measuring. */

/* Random signs and mantissas, with the exponent of 0.25 .. 0.5. */
void cpu_probe_fill(void *memory, const cpu_desc *desc) {
    uint32_t *words = memory;
    bool half = desc->type == dnnl_bf16;
    uint32_t keep = half ? 0x807f807fu : 0x807fffffu, exponent = half ? 0x3e803e80u : 0x3e800000u;
    uint64_t state = 0x9e3779b97f4a7c15u;
    size_t count = cpu_desc_span(desc) / sizeof *words;
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        words[i] = ((uint32_t)(state >> 32) & keep) | exponent;
    }
}
