/* Winograd's F(4x4, 3x3) in float32 (Lavin and Gray 2016): a 3x3 convolution of stride 1 as 36
 * matrix products over tiles, which oneDNN computes, between transforms of the tiles. oneDNN 3 has
 * none of its own for x86-64. */
#ifndef DEVICE_CPU_WINOGRAD_H
#define DEVICE_CPU_WINOGRAD_H

#include <dnnl.h>
#include <stddef.h>

typedef enum cpu_winograd_direction {
    CPU_WINOGRAD_FORWARD,
    CPU_WINOGRAD_BACKWARD_DATA,
    CPU_WINOGRAD_BACKWARD_WEIGHTS
} cpu_winograd_direction;

/* Where the elements of a tensor of four dimensions lie, as oneDNN says it: outer strides, then
 * inner blocks, the outermost first. Only the first two dimensions may be in blocks. */
#define CPU_WINOGRAD_BLOCKS 4
typedef struct cpu_winograd_layout {
    ptrdiff_t strides[4]; /* in elements */
    int block_count;
    int block_dimensions[CPU_WINOGRAD_BLOCKS], block_sizes[CPU_WINOGRAD_BLOCKS];
} cpu_winograd_layout;

/* Gradients lie as what they belong to. */
typedef struct cpu_winograd_problem {
    cpu_winograd_direction direction;
    int rows, padding;                 /* padding 0 .. 2 on every side */
    int input_channels, height, width; /* of the input */
    int output_channels;
    cpu_winograd_layout input, weights, output; /* weights: [out, in, 3, 3] */
    int threads;
} cpu_winograd_problem;

typedef struct cpu_winograd cpu_winograd;

/* dnnl_unimplemented: the shape or a layout does not fit: channels come in runs of 8 or 16. */
dnnl_status_t cpu_winograd_create(cpu_winograd **winograd, dnnl_engine_t engine,
                                  const cpu_winograd_problem *problem);
void cpu_winograd_destroy(cpu_winograd *winograd); /* takes NULL */

size_t cpu_winograd_scratch_bytes(const cpu_winograd *winograd);

/* The gradients of a backward pass are written, the rest is read. bias: [out], or NULL. */
typedef struct cpu_winograd_addresses {
    float *input, *weights, *bias, *output;
    void *scratch; /* on a cache line */
} cpu_winograd_addresses;

/* Once, before running: executing allocates nothing. */
dnnl_status_t cpu_winograd_bind(cpu_winograd *winograd, const cpu_winograd_addresses *addresses);
dnnl_status_t cpu_winograd_run(const cpu_winograd *winograd, dnnl_stream_t stream);

#endif
