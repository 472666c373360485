/* SPDX-License-Identifier: Apache-2.0 */
/* A pass: one primitive, with reorders through scratch memory for the tensors whose layout differs
 * from the one it prefers. Yoke's own kernels read and write every layout directly. */
#ifndef DEVICE_CPU_PASS_H
#define DEVICE_CPU_PASS_H

#include "device/cpu/own_kernel.h"

/* The operands of a convolution or a product, and of its gradients. */
typedef enum cpu_role { CPU_INPUT, CPU_WEIGHTS, CPU_BIAS, CPU_OUTPUT, CPU_ROLES } cpu_role;

typedef struct cpu_operand {
    int argument; /* DNNL_ARG_SRC, ...; 0: the pass has no such operand */
    bool written;
    const cpu_desc *stored; /* the tensor's layout; NULL: the primitive's choice */
    bool moved;             /* differs from what the primitive prefers */
    size_t copy_offset;     /* in scratch, of the reordered copy */
    cpu_call move;
} cpu_operand;

typedef struct cpu_pass {
    cpu_primitive primitive;
    cpu_own_kernel *own; /* in place of the primitive; NULL: none */
    cpu_operand operands[CPU_ROLES];
    size_t scratch_bytes; /* scratchpad and copies */
    size_t kept_bytes;    /* of an inference pass, what it makes of the weights */
} cpu_pass;

/* The caller fills in argument, written and stored of every operand; the rest is zero. DEVICE:
 * oneDNN has no such primitive. */
typedef yoke_status cpu_create_pass(cpu_pass *pass, cpu_device *device,
                                    const cpu_operation *operation);
cpu_create_pass cpu_pass_create;
/* The same by Yoke's own kernels; every operand has a stored layout. */
cpu_create_pass cpu_pass_create_winograd, cpu_pass_create_depthwise, cpu_pass_create_depthwise_wide,
    cpu_pass_create_few_pixels;
/* By winograd_inference.h: in tiles of 4x4 or 2x2, which threads share by tiles or by filters. */
cpu_create_pass cpu_pass_create_winograd_4_tiles, cpu_pass_create_winograd_4_filters,
    cpu_pass_create_winograd_2_tiles, cpu_pass_create_winograd_2_filters;
bool cpu_pass_is_empty(const cpu_pass *pass); /* none created */
void cpu_pass_destroy(cpu_pass *pass);        /* accepts zeroed and half-built ones */

/* addresses: one for each role. */
yoke_status cpu_pass_bind(cpu_pass *pass, cpu_device *device, void *const *addresses, void *scratch,
                          void *kept);
/* Before the first run, and whenever weights have changed: writes what is kept of them. */
void cpu_pass_prepare(const cpu_pass *pass, const float *weights, void *kept);
yoke_status cpu_pass_run(const cpu_pass *pass, cpu_device *device);

/* The memory of measured passes. It grows: the passes of one plan use the same, one direction after
 * the other. */
typedef struct cpu_probe {
    struct {
        void *address;
        size_t bytes;
        dnnl_data_type_t type; /* of the values in it */
    } operands[CPU_ROLES];
    void *scratch;
    size_t scratch_bytes;
} cpu_probe;
void cpu_probe_free(cpu_probe *probe, cpu_device *device);
/* Holds a contest of the passes, bound to the probe. */
yoke_status cpu_pass_fastest(int *best, double *best_ms, cpu_pass *passes, int count,
                             cpu_device *device, cpu_probe *probe, yoke_algorithms *algorithms);

/* "jit:avx512_core"; a static text. */
const char *cpu_pass_implementation(const cpu_pass *pass);
/* The same, where Yoke's own algorithms have their names; a static text. */
const char *cpu_pass_algorithm(const cpu_pass *pass);

#endif
