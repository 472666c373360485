/* SPDX-License-Identifier: Apache-2.0 */
/* One primitive with the reorders around it. */
#include "device/cpu/pass.h"

#include <stdlib.h>
#include <string.h>

#define COPY_ALIGNMENT ((size_t)4096)

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

yoke_status cpu_pass_create_winograd(cpu_pass *pass, cpu_device *device,
                                     const cpu_operation *operation) {
    TRY(cpu_winograd_create(&pass->winograd, device, operation));
    pass->scratch_bytes = cpu_winograd_scratch_bytes(pass->winograd);
    pass->kept_bytes = cpu_winograd_kept_bytes(pass->winograd);
    return YOKE_OK;
}

yoke_status cpu_pass_create_depthwise(cpu_pass *pass, cpu_device *device,
                                      const cpu_operation *operation) {
    TRY(cpu_depthwise_create(&pass->depthwise, device, operation));
    pass->scratch_bytes = cpu_depthwise_scratch_bytes(pass->depthwise);
    return YOKE_OK;
}

bool cpu_pass_is_empty(const cpu_pass *pass) {
    return pass->primitive.description == NULL && pass->winograd == NULL && pass->depthwise == NULL;
}

void cpu_pass_destroy(cpu_pass *pass) {
    for (int i = 0; i < CPU_ROLES; i++)
        cpu_call_destroy(&pass->operands[i].move);
    cpu_primitive_destroy(&pass->primitive);
    cpu_winograd_destroy(pass->winograd);
    cpu_depthwise_destroy(pass->depthwise);
    memset(pass, 0, sizeof *pass);
}

void cpu_pass_prepare(const cpu_pass *pass) {
    if (pass->kept_bytes > 0) cpu_winograd_prepare(pass->winograd);
}

yoke_status cpu_pass_bind(cpu_pass *pass, cpu_device *device, void *const *addresses, void *scratch,
                          void *kept) {
    if (pass->winograd != NULL) {
        const cpu_winograd_addresses bound = {
            .input = addresses[CPU_INPUT],
            .output = addresses[CPU_OUTPUT],
            .weights = addresses[CPU_WEIGHTS],
            .bias = pass->operands[CPU_BIAS].argument != 0 ? addresses[CPU_BIAS] : NULL,
            .scratch = scratch,
            .kept = kept};
        return cpu_winograd_bind(pass->winograd, &bound);
    }
    if (pass->depthwise != NULL) {
        const cpu_depthwise_addresses bound = {
            .input = addresses[CPU_INPUT],
            .output = addresses[CPU_OUTPUT],
            .weights = addresses[CPU_WEIGHTS],
            .bias = pass->operands[CPU_BIAS].argument != 0 ? addresses[CPU_BIAS] : NULL,
            .scratch = scratch};
        cpu_depthwise_bind(pass->depthwise, &bound);
        return YOKE_OK;
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
    if (pass->winograd != NULL) return cpu_winograd_run(pass->winograd);
    if (pass->depthwise != NULL) {
        cpu_depthwise_run(pass->depthwise);
        return YOKE_OK;
    }
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

#define HOPELESS                                                                                   \
    3.0 /* times slower than the best, in the first (cold) run: no need to run it again */
#define LONG_MILLISECONDS 50.0 /* longer runs vary little: one is enough */

static yoke_status run_timed(const cpu_pass *pass, cpu_device *device, double *milliseconds) {
    uint64_t start = yoke_now_ns();
    TRY(cpu_pass_run(pass, device));
    *milliseconds = (double)(yoke_now_ns() - start) * 1e-6;
    return YOKE_OK;
}

static yoke_status time_runs(const cpu_pass *pass, cpu_device *device, double best_ms,
                             double *milliseconds) {
    TRY(run_timed(pass, device, milliseconds));
    if (*milliseconds > HOPELESS * best_ms) return YOKE_OK;
    int runs = *milliseconds > LONG_MILLISECONDS ? 1 : 3;
    for (int i = 0; i < runs; i++) {
        double run_ms = 0;
        TRY(run_timed(pass, device, &run_ms));
        if (i == 0 || run_ms < *milliseconds) *milliseconds = run_ms;
    }
    return YOKE_OK;
}

yoke_status cpu_pass_time(cpu_pass *pass, cpu_device *device, void *const *addresses,
                          double best_ms, double *milliseconds) {
    void *memory = NULL;
    size_t scratch_bytes = cpu_align(pass->scratch_bytes, COPY_ALIGNMENT);
    TRY(yoke_device_allocate(&device->base, scratch_bytes + pass->kept_bytes, "measuring",
                             &memory));
    yoke_status status =
        cpu_pass_bind(pass, device, addresses, memory, (char *)memory + scratch_bytes);
    if (status == YOKE_OK) cpu_pass_prepare(pass);
    if (status == YOKE_OK) status = time_runs(pass, device, best_ms, milliseconds);
    yoke_device_free(&device->base, memory);
    return status;
}

const char *cpu_pass_implementation(const cpu_pass *pass) {
    if (pass->winograd != NULL || pass->depthwise != NULL) return "yoke";
    const char *text = NULL;
    dnnl_status_t status = dnnl_primitive_desc_query(pass->primitive.description,
                                                     dnnl_query_impl_info_str, 0, (void *)&text);
    return status == dnnl_success && text != NULL ? text : "unknown";
}

const char *cpu_pass_algorithm(const cpu_pass *pass) {
    if (pass->winograd != NULL) return "winograd";
    return pass->depthwise != NULL ? "depthwise" : cpu_pass_implementation(pass);
}
