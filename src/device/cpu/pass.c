/* SPDX-License-Identifier: Apache-2.0 */
/* One primitive with the reorders around it. */
#include "device/cpu/pass.h"
#include "device/cpu/contest.h"

#include <stdlib.h>
#include <string.h>

#define COPY_ALIGNMENT ((size_t)4096)
/* Where the passes of a contest keep more than a third-level cache holds, neither will the weights
 * of a whole model stay in it from run to run. */
#define CACHE_BYTES ((size_t)32 << 20)

yoke_status cpu_pass_create(cpu_pass *pass, cpu_device *device, const cpu_operation *operation) {
    TRY(cpu_primitive_create(&pass->primitive, device, operation));
    pass->scratch_bytes = cpu_align(cpu_primitive_scratch(&pass->primitive), COPY_ALIGNMENT);
    for (int i = 0; i < CPU_ROLES; i++) {
        cpu_operand *operand = &pass->operands[i];
        if (operand->argument == 0) continue;
        const cpu_desc *preferred = cpu_primitive_desc(&pass->primitive, operand->argument);
        if (operand->stored == NULL) operand->stored = preferred;
        operand->moved = operand->stored != preferred;
        if (!operand->moved) continue;
        TRY(operand->written ? cpu_reorder_check(device, preferred, operand->stored)
                             : cpu_reorder_check(device, operand->stored, preferred));
        operand->copy_offset = pass->scratch_bytes;
        pass->scratch_bytes += cpu_align(preferred->bytes, COPY_ALIGNMENT);
    }
    return YOKE_OK;
}

bool cpu_pass_is_empty(const cpu_pass *pass) {
    return pass->primitive.description == NULL && pass->own == NULL;
}

void cpu_pass_destroy(cpu_pass *pass) {
    for (int i = 0; i < CPU_ROLES; i++)
        cpu_call_destroy(&pass->operands[i].move);
    cpu_primitive_destroy(&pass->primitive);
    if (pass->own != NULL) pass->own->calls->destroy(pass->own);
    memset(pass, 0, sizeof *pass);
}

void cpu_pass_prepare(const cpu_pass *pass, const float *weights, void *kept) {
    if (pass->kept_bytes > 0) pass->own->calls->prepare(pass->own, weights, kept);
}

yoke_status cpu_pass_bind(cpu_pass *pass, cpu_device *device, void *const *addresses, void *scratch,
                          void *kept) {
    if (pass->own != NULL) {
        const cpu_own_addresses own = {
            .input = addresses[CPU_INPUT],
            .output = addresses[CPU_OUTPUT],
            .weights = addresses[CPU_WEIGHTS],
            .bias = pass->operands[CPU_BIAS].argument != 0 ? addresses[CPU_BIAS] : NULL,
            .scratch = scratch,
            .kept = kept};
        return pass->own->calls->bind(pass->own, &own);
    }
    cpu_address bound[CPU_ROLES + 1] = {0};
    for (int i = 0; i < CPU_ROLES; i++) {
        cpu_operand *operand = &pass->operands[i];
        if (operand->argument == 0) continue;
        void *address = addresses[i];
        if (operand->moved) {
            void *copy = (char *)scratch + operand->copy_offset;
            const cpu_desc *preferred = cpu_primitive_desc(&pass->primitive, operand->argument);
            cpu_call_destroy(&operand->move);
            if (operand->written)
                TRY(cpu_reorder(&operand->move, device, preferred, copy, operand->stored, address));
            else
                TRY(cpu_reorder(&operand->move, device, operand->stored, address, preferred, copy));
            address = copy;
        }
        bound[i] = (cpu_address){operand->argument, address};
    }
    bound[CPU_ROLES] = (cpu_address)CPU_LAST_ADDRESS;
    return cpu_primitive_bind(&pass->primitive, device, bound, scratch);
}

yoke_status cpu_pass_run(const cpu_pass *pass, cpu_device *device) {
    if (pass->own != NULL) return pass->own->calls->run(pass->own);
    for (int i = 0; i < CPU_ROLES; i++) {
        if (!pass->operands[i].written) TRY(cpu_call_run(&pass->operands[i].move, device));
    }
    TRY(cpu_call_run(&pass->primitive.call, device));
    for (int i = 0; i < CPU_ROLES; i++) {
        if (pass->operands[i].written) TRY(cpu_call_run(&pass->operands[i].move, device));
    }
    return YOKE_OK;
}

/* Measuring. */

typedef struct pass_contest {
    cpu_pass *passes;
    cpu_device *device;
} pass_contest;

void cpu_probe_free(cpu_probe *probe, cpu_device *device) {
    for (int role = 0; role < CPU_ROLES; role++)
        yoke_device_free(&device->base, probe->operands[role].address);
    yoke_device_free(&device->base, probe->scratch);
    memset(probe, 0, sizeof *probe);
}

static yoke_status grow(void **memory, size_t *held, size_t bytes, cpu_device *device) {
    if (bytes <= *held) return YOKE_OK;
    yoke_device_free(&device->base, *memory);
    *held = 0;
    TRY(yoke_device_allocate(&device->base, bytes, "measuring", memory));
    *held = bytes;
    return YOKE_OK;
}

/* Where the weights have no layout yet, passes may choose layouts of different sizes. */
static yoke_status make_room(cpu_probe *probe, const cpu_pass *pass, cpu_device *device) {
    for (int role = 0; role < CPU_ROLES; role++) {
        const cpu_operand *operand = &pass->operands[role];
        if (operand->argument == 0) continue;
        size_t bytes = cpu_desc_span(operand->stored), held = probe->operands[role].bytes;
        bool same_type = probe->operands[role].type == operand->stored->type;
        if (bytes <= held && same_type) continue;
        TRY(grow(&probe->operands[role].address, &probe->operands[role].bytes, bytes, device));
        cpu_probe_fill(probe->operands[role].address, operand->stored);
        probe->operands[role].type = operand->stored->type;
    }
    return YOKE_OK;
}

/* All passes use the same scratch; behind it each has what it keeps. */
static yoke_status bind_to_probe(cpu_pass *passes, int count, cpu_device *device,
                                 cpu_probe *probe) {
    size_t scratch_bytes = 0, kept_bytes = 0;
    void *addresses[CPU_ROLES];
    for (int i = 0; i < count; i++) {
        TRY(make_room(probe, &passes[i], device));
        if (scratch_bytes < passes[i].scratch_bytes) scratch_bytes = passes[i].scratch_bytes;
        kept_bytes += cpu_align(passes[i].kept_bytes, COPY_ALIGNMENT);
    }
    scratch_bytes = cpu_align(scratch_bytes, COPY_ALIGNMENT);
    TRY(grow(&probe->scratch, &probe->scratch_bytes, scratch_bytes + kept_bytes, device));
    for (int role = 0; role < CPU_ROLES; role++)
        addresses[role] = probe->operands[role].address;
    char *kept = (char *)probe->scratch + scratch_bytes;
    for (int i = 0; i < count; i++) {
        yoke_status status = cpu_pass_bind(&passes[i], device, addresses, probe->scratch, kept);
        if (status == YOKE_OK) cpu_pass_prepare(&passes[i], addresses[CPU_WEIGHTS], kept);
        kept += cpu_align(passes[i].kept_bytes, COPY_ALIGNMENT);
        if (status == YOKE_OK) continue;
        if (status == YOKE_ERROR_DEVICE) /* oneDNN lacks a reorder */
            cpu_pass_destroy(&passes[i]);
        else
            return status;
    }
    return YOKE_OK;
}

static yoke_status run_timed(void *context, int candidate, double *milliseconds) {
    const pass_contest *contest = context;
    const cpu_pass *pass = &contest->passes[candidate];
    uint64_t start = yoke_now_ns();
    if (cpu_pass_is_empty(pass)) return FAIL(YOKE_ERROR_DEVICE, "this pass could not be bound");
    TRY(cpu_pass_run(pass, contest->device));
    *milliseconds = (double)(yoke_now_ns() - start) * 1e-6;
    return YOKE_OK;
}

yoke_status cpu_pass_fastest(int *best, double *best_ms, cpu_pass *passes, int count,
                             cpu_device *device, cpu_probe *probe, yoke_algorithms *algorithms) {
    pass_contest entered = {passes, device};
    size_t kept_bytes = 0;
    for (int i = 0; i < count; i++)
        kept_bytes += passes[i].kept_bytes;
    const cpu_contest contest = {
        .count = count, .run = run_timed, .context = &entered, .cold = kept_bytes > CACHE_BYTES};
    if (count > 1) TRY(bind_to_probe(passes, count, device, probe));
    return cpu_contest_hold(&contest, algorithms, best, best_ms);
}

const char *cpu_pass_implementation(const cpu_pass *pass) {
    if (pass->own != NULL) return "yoke";
    const char *text = NULL;
    dnnl_status_t status = dnnl_primitive_desc_query(pass->primitive.description,
                                                     dnnl_query_impl_info_str, 0, (void *)&text);
    return status == dnnl_success && text != NULL ? text : "unknown";
}

const char *cpu_pass_algorithm(const cpu_pass *pass) {
    return pass->own != NULL ? pass->own->calls->name : cpu_pass_implementation(pass);
}
