/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between layouts, for loading and saving. A device keeps the reorder of each pair of
 * layouts: oneDNN compiles code for it, which a save at the end of a run may have no memory for. */
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

typedef struct cpu_conversion {
    struct cpu_conversion *next;
    const cpu_desc *from, *to;
    cpu_call call; /* empty: a copy */
} cpu_conversion;

static void conversion_destroy(cpu_conversion *conversion) {
    cpu_call_destroy(&conversion->call);
    yoke_free(conversion);
}

/* The two may differ in ndim ([out, in / groups, k, k] is [groups, out / groups, ...] to oneDNN):
 * reshape the one with fewer dimensions, which is plain. */
static yoke_status conversion_build(cpu_conversion *conversion, cpu_device *device) {
    const cpu_desc *from = conversion->from, *to = conversion->to;
    if (to->ndims > from->ndims)
        TRY_DNNL(cpu_desc_reshape(&from, &device->descs, from, to->ndims, to->dims));
    else if (to->ndims < from->ndims)
        TRY_DNNL(cpu_desc_reshape(&to, &device->descs, to, from->ndims, from->dims));
    return cpu_reorder(&conversion->call, device, from, NULL, to, NULL);
}

static cpu_conversion *find(const cpu_device *device, const cpu_desc *from, const cpu_desc *to) {
    cpu_conversion *at = device->conversions.first;
    while (at != NULL && (at->from != from || at->to != to))
        at = at->next;
    return at;
}

static yoke_status add_conversion(cpu_device *device, const cpu_desc *from, const cpu_desc *to) {
    if (find(device, from, to) != NULL) return YOKE_OK;
    cpu_conversion *added = yoke_calloc(1, sizeof *added);
    if (added == NULL) return FAIL_MEMORY(sizeof *added, "a conversion of layouts");
    added->from = from;
    added->to = to;
    yoke_status status = conversion_build(added, device);
    if (status != YOKE_OK) {
        conversion_destroy(added);
        return status;
    }
    added->next = device->conversions.first;
    device->conversions.first = added;
    return YOKE_OK;
}

/* Both directions at once: an engine writes every parameter when it is made, so the reorders that
 * read them for a save exist from then on. */
static yoke_status prepare(cpu_conversion **conversion, cpu_device *device, const cpu_desc *from,
                           const cpu_desc *to) {
    *conversion = find(device, from, to);
    if (*conversion != NULL) return YOKE_OK;
    TRY(add_conversion(device, to, from));
    TRY(add_conversion(device, from, to));
    *conversion = find(device, from, to);
    return YOKE_OK;
}

static yoke_status conversion_run(const cpu_call *call, cpu_device *device, void *to,
                                  const void *from) {
    TRY_DNNL(dnnl_memory_set_data_handle(call->arguments[0].memory, (void *)(uintptr_t)from));
    TRY_DNNL(dnnl_memory_set_data_handle(call->arguments[1].memory, to));
    return cpu_call_run(call, device);
}

yoke_status cpu_layout_convert(yoke_device *device, const yoke_layout *to_layout, void *to,
                               const yoke_layout *from_layout, const void *from) {
    cpu_device *cpu = cpu_of(device);
    const cpu_desc *to_desc = NULL, *from_desc = NULL;
    cpu_conversion *conversion = NULL;
    TRY_DNNL(cpu_desc_copy(&to_desc, &cpu->descs, cpu_layout_desc(to_layout)));
    TRY_DNNL(cpu_desc_copy(&from_desc, &cpu->descs, cpu_layout_desc(from_layout)));
    pthread_mutex_lock(&cpu->conversions.turn);
    yoke_status status = prepare(&conversion, cpu, from_desc, to_desc);
    if (status == YOKE_OK && conversion->call.primitive != NULL)
        status = conversion_run(&conversion->call, cpu, to, from);
    else if (status == YOKE_OK && to != from)
        memcpy(to, from, to_layout->bytes);
    pthread_mutex_unlock(&cpu->conversions.turn);
    return status;
}

void cpu_conversions_clear(cpu_device *device) {
    while (device->conversions.first != NULL) {
        cpu_conversion *conversion = device->conversions.first;
        device->conversions.first = conversion->next;
        conversion_destroy(conversion);
    }
}
