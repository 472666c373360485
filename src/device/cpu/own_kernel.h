/* SPDX-License-Identifier: Apache-2.0 */
/* Yoke's own kernels of operations with weights, in place of a primitive of oneDNN. They read and
 * write every operand in its stored layout. */
#ifndef DEVICE_CPU_OWN_KERNEL_H
#define DEVICE_CPU_OWN_KERNEL_H

#include "device/cpu/cpu.h"

/* A backward pass writes its gradients and reads the rest. bias: [out], or NULL. */
typedef struct cpu_own_addresses {
    void *input, *output; /* in the type of their descriptors */
    float *weights, *bias;
    void *scratch; /* aligned to a cache line */
    void *kept;    /* likewise; in inference */
} cpu_own_addresses;

typedef struct cpu_own_kernel cpu_own_kernel;

typedef struct cpu_own_calls {
    const char *name;
    size_t (*scratch_bytes)(const cpu_own_kernel *kernel);
    /* What the kernel makes of the weights in inference, and prepare writes; NULL: nothing. prepare
     * may run while another thread runs the kernel. */
    size_t (*kept_bytes)(const cpu_own_kernel *kernel);
    void (*prepare)(const cpu_own_kernel *kernel, const float *weights, void *kept);
    /* Kernels of one name for the same weights write the same where this is the same. NULL: it
     * always is. */
    int (*kept_form)(const cpu_own_kernel *kernel);
    /* Called once before run, which allocates nothing. */
    yoke_status (*bind)(cpu_own_kernel *kernel, const cpu_own_addresses *addresses);
    yoke_status (*run)(const cpu_own_kernel *kernel);
    void (*destroy)(cpu_own_kernel *kernel);
} cpu_own_calls;

/* First member of each. */
struct cpu_own_kernel {
    const cpu_own_calls *calls;
};

#endif
