/* SPDX-License-Identifier: Apache-2.0 */
/* Operations that loop over plain rows in the compute precision. A cpu_plain_operation describes
 * one of them, and plain.c makes, binds and runs the plans of all. The plan copies an input of
 * another layout to scratch before the loops read it, and its gradient back after they wrote it:
 * device/cuda/kernel_plan.h does the same. */
#ifndef DEVICE_CPU_PLAIN_H
#define DEVICE_CPU_PLAIN_H

#include "device/cpu/cpu.h"
#include "device/view.h"

typedef struct cpu_plain_plan cpu_plain_plan;

typedef struct cpu_plain_operation {
    unsigned flags; /* YOKE_READS_INPUT and others; in place: only over an input that is plain */
    size_t bytes;   /* of the plan, which begins with a cpu_plain_plan */
    bool any_order; /* computes each element by itself: inputs of one layout stay in it */
    /* Adds to the plan's needs what the flags do not say. NULL: there is nothing more. */
    yoke_status (*prepare)(cpu_plain_plan *plan, const yoke_plan_request *request);
    void (*forward)(const cpu_plain_plan *plan);
    void (*backward)(const cpu_plain_plan *plan);
    /* Both passes in place of the two above, where they can fail. */
    yoke_status (*call)(const cpu_plain_plan *plan, bool backward);
    bool float32; /* reads and writes float32, also where the compute precision is another */
} cpu_plain_operation;

typedef struct cpu_plain_input {
    const cpu_desc *given, *plain;
    cpu_call read, give_back;
} cpu_plain_input;

/* The output of an operation that computes in another type than the plan's: how it is copied. */
typedef struct cpu_plain_output {
    const cpu_desc *given, *plain;
    cpu_call write, read, read_gradient;
} cpu_plain_output;

struct cpu_plain_plan {
    yoke_plan base; /* binding: plain values and gradients, and free scratch */
    cpu_plain_operation calls;
    int input_count;
    bool half;
    cpu_plain_input inputs[YOKE_PLAN_INPUTS];
    cpu_plain_output output;
};

/* A plan of this operation with so many inputs. */
yoke_status cpu_plain_plan_create(yoke_plan **plan, cpu_device *device,
                                  const yoke_plan_request *request,
                                  const cpu_plain_operation *calls, int inputs);

/* Element 0 of a row of a plain value. */
static inline void *cpu_plain_row(const cpu_plain_plan *plan, const void *values, size_t row,
                                  size_t elements) {
    return (char *)values + row * elements * (plan->half ? sizeof(uint16_t) : sizeof(float));
}

#endif
