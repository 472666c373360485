/* SPDX-License-Identifier: Apache-2.0 */
/* Memory and bound primitives of one device of the oneDNN loop. */
#include "onednn_loop_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void loop_must(dnnl_status_t status, const char *call) {
    if (status == dnnl_success) return;
    fprintf(stderr, "onednn_loop: %s failed with status %d\n", call, (int)status);
    exit(70);
}

void *loop_allocate(loop_device *device, size_t bytes) {
    size_t huge = (size_t)1 << 21, page = bytes >= huge ? huge : 64;
    size_t rounded = (bytes + page - 1) / page * page;
    void *memory =
        device->allocation_count < LOOP_ALLOCATIONS ? aligned_alloc(page, rounded) : NULL;
    if (!memory) {
        fprintf(stderr, "onednn_loop: no memory for %zu bytes\n", bytes);
        exit(71);
    }
    if (page == huge) (void)madvise(memory, rounded, MADV_HUGEPAGE);
    memset(memory, 0, rounded);
    device->allocations[device->allocation_count++] = memory;
    return memory;
}

void loop_bind(loop_device *device, loop_call *call, int argument, const cpu_desc *desc,
               void *data) {
    dnnl_exec_arg_t *slot = &call->arguments[call->count++];
    slot->arg = argument;
    MUST(dnnl_memory_create(&slot->memory, desc->onednn, device->engine, data));
}

const cpu_desc *loop_desc(loop_device *device, const_dnnl_primitive_desc_t description,
                          int argument) {
    const cpu_desc *desc = NULL;
    MUST(cpu_desc_of_argument(&desc, &device->descs, description, argument));
    return desc;
}

void loop_make(loop_device *device, loop_call *call, dnnl_primitive_desc_t description) {
    MUST(dnnl_primitive_create(&call->primitive, description));
    const cpu_desc *scratch = loop_desc(device, description, DNNL_ARG_SCRATCHPAD);
    size_t bytes = scratch ? scratch->bytes : 0;
    if (bytes > device->scratch_bytes) device->scratch_bytes = bytes;
    if (bytes > 0) loop_bind(device, call, DNNL_ARG_SCRATCHPAD, scratch, DNNL_MEMORY_NONE);
    MUST(dnnl_primitive_desc_destroy(description));
}

void loop_reorder(loop_device *device, loop_call *call, const cpu_desc *from, void *from_data,
                  const cpu_desc *to, void *to_data) {
    dnnl_primitive_desc_t description;
    MUST(dnnl_reorder_primitive_desc_create(&description, from->onednn, device->engine, to->onednn,
                                            device->engine, NULL));
    loop_make(device, call, description);
    loop_bind(device, call, DNNL_ARG_FROM, from, from_data);
    loop_bind(device, call, DNNL_ARG_TO, to, to_data);
}

void loop_execute(const loop_device *device, const loop_call *call) {
    if (!call->primitive) return;
    MUST(dnnl_primitive_execute(call->primitive, device->stream, call->count, call->arguments));
}

void loop_call_destroy(loop_call *call) {
    for (int i = 0; i < call->count; i++)
        dnnl_memory_destroy(call->arguments[i].memory);
    if (call->primitive) dnnl_primitive_destroy(call->primitive);
    *call = (loop_call){0};
}

/* Applies `visit` to every call of a device. */
static void each_call(loop_device *device, void (*visit)(loop_device *, loop_call *)) {
    visit(device, &device->upload);
    for (int i = 0; i < device->op_count; i++) {
        loop_op *op = &device->ops[i];
        visit(device, &op->forward);
        visit(device, &op->backward);
        visit(device, &op->backward_weights);
        visit(device, &op->forward_reorder);
        visit(device, &op->backward_reorder);
    }
}

static void visit_scratch(loop_device *device, loop_call *call) {
    for (int i = 0; i < call->count; i++)
        if (call->arguments[i].arg == DNNL_ARG_SCRATCHPAD)
            MUST(dnnl_memory_set_data_handle(call->arguments[i].memory, device->scratch));
}

static void visit_destroy(loop_device *device, loop_call *call) {
    (void)device;
    loop_call_destroy(call);
}

void loop_bind_scratch(loop_device *device) {
    device->scratch = loop_allocate(device, device->scratch_bytes + 64);
    each_call(device, visit_scratch);
}

void loop_device_create(loop_device *device) {
    MUST(dnnl_engine_create(&device->engine, dnnl_cpu, 0));
    MUST(dnnl_stream_create(&device->stream, device->engine, dnnl_stream_default_flags));
    device->type = device->options->bfloat16 ? dnnl_bf16 : dnnl_f32;
}

void loop_device_destroy(loop_device *device) {
    each_call(device, visit_destroy);
    for (int i = 0; i < device->allocation_count; i++)
        free(device->allocations[i]);
    cpu_descs_clear(&device->descs);
    if (device->stream) dnnl_stream_destroy(device->stream);
    if (device->engine) dnnl_engine_destroy(device->engine);
}
