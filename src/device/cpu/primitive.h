/* A oneDNN primitive from its description to a call with addresses: what the operations
 * that are one primitive a pass have in common. */
#ifndef DEVICE_CPU_PRIMITIVE_H
#define DEVICE_CPU_PRIMITIVE_H

#include "device/cpu/cpu.h"

/* DNNL_ARG_... that operations of this room have. */
#define CPU_PRIMITIVE_ARGUMENTS 17

typedef struct cpu_primitive {
    dnnl_primitive_desc_t description;              /* NULL: there is no such pass */
    const cpu_desc *descs[CPU_PRIMITIVE_ARGUMENTS]; /* see cpu_primitive_desc */
    cpu_call call;
} cpu_primitive;

/* DEVICE: oneDNN has no such primitive. The scratchpad is the caller's. */
yoke_status cpu_primitive_create(cpu_primitive *primitive, cpu_device *device,
                                 const cpu_operation *operation);
void cpu_primitive_destroy(cpu_primitive *primitive); /* takes zeroed and half-built ones */

/* The descriptor the primitive chose for an execution argument (DNNL_ARG_DST, ...); NULL when it
 * has no such argument. */
const cpu_desc *cpu_primitive_desc(const cpu_primitive *primitive, int argument);
/* Bytes of an argument; 0 when there is none. */
size_t cpu_primitive_bytes(const cpu_primitive *primitive, int argument);
size_t cpu_primitive_scratch(const cpu_primitive *primitive); /* bytes; 0 for no pass */

typedef struct cpu_address {
    int argument;
    void *address;
} cpu_address;

#define CPU_LAST_ADDRESS                                                                           \
    { -1, NULL }

/* Binds every argument of the list with the descriptor the primitive chose, but for those of
 * argument 0. Forgets an earlier binding. */
yoke_status cpu_primitive_bind(cpu_primitive *primitive, cpu_device *device,
                               const cpu_address *addresses, void *scratch);

/* First member of a plan that is one primitive a pass, and its ways. */
typedef struct cpu_primitive_plan {
    yoke_plan base;
    cpu_primitive forward, backward;
} cpu_primitive_plan;

yoke_status cpu_primitive_plan_forward(yoke_plan *plan, const yoke_plan_step *step);
yoke_status cpu_primitive_plan_backward(yoke_plan *plan, const yoke_plan_step *step);
void cpu_primitive_plan_destroy(yoke_plan *plan);                  /* frees the plan, too */
size_t cpu_primitive_plan_scratch(const cpu_primitive_plan *plan); /* of the needier pass */

#endif
