/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of the host program. */
#include "device/cpu/plain.h"

static yoke_status call_host(const cpu_plain_plan *plain, bool backward) {
    return yoke_plan_call_host(&plain->base, &plain->base.binding, backward, NULL);
}

static yoke_status host_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    (void)request;
    return yoke_plan_host_parameters(&plain->base);
}

yoke_status cpu_plan_host(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_READS_INPUTS | YOKE_READS_OUTPUT |
                                                       YOKE_HAS_PARAMETERS,
                                              .bytes = sizeof(cpu_plain_plan),
                                              .float32 = true,
                                              .prepare = host_prepare,
                                              .call = call_host};
    return cpu_plain_plan_create(plan, device, request, &calls, request->operation->host.inputs);
}
