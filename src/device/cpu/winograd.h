/* Winograd's F(4x4, 3x3) (Lavin and Gray 2016): a 3x3 convolution of stride 1 as 36 matrix products
 * over tiles, which oneDNN computes, between transforms of the tiles. It computes in float32 and
 * reads and writes values in float32 or bfloat16. oneDNN 3 has none of its own for x86-64. */
#ifndef DEVICE_CPU_WINOGRAD_H
#define DEVICE_CPU_WINOGRAD_H

#include "device/cpu/primitive.h"

typedef struct cpu_winograd cpu_winograd;

/* The convolution's descriptors are final; gradients lie as what they belong to. DEVICE: the shape
 * or a layout does not fit: padding 0 to 2, and channels in runs of 8. */
yoke_status cpu_winograd_create(cpu_winograd **winograd, cpu_device *device,
                                const cpu_operation *convolution);
void cpu_winograd_destroy(cpu_winograd *winograd); /* takes NULL */

size_t cpu_winograd_scratch_bytes(const cpu_winograd *winograd);

/* The gradients of a backward pass are written, the rest is read. bias: [out], or NULL. */
typedef struct cpu_winograd_addresses {
    void *input, *output; /* in the type of their descriptors */
    float *weights, *bias;
    void *scratch; /* on a cache line */
} cpu_winograd_addresses;

/* Once, before running: executing allocates nothing. */
yoke_status cpu_winograd_bind(cpu_winograd *winograd, const cpu_winograd_addresses *addresses);
yoke_status cpu_winograd_run(const cpu_winograd *winograd);

#endif
