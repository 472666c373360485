/* Operations with weights, convolution and linear: output = input * weights + bias. One plan serves
 * both: it has a forward pass and one for the gradient of the data and of the weights, and for each
 * the algorithm and layouts that measured best. */
#ifndef DEVICE_CPU_WEIGHTED_H
#define DEVICE_CPU_WEIGHTED_H

#include "device/cpu/pass.h"

typedef enum cpu_role { CPU_INPUT, CPU_WEIGHTS, CPU_BIAS, CPU_OUTPUT, CPU_ROLES } cpu_role;

typedef enum cpu_direction {
    CPU_FORWARD,
    CPU_BACKWARD_DATA,
    CPU_BACKWARD_WEIGHTS,
    CPU_DIRECTIONS
} cpu_direction;

typedef union cpu_operation_desc {
    dnnl_convolution_desc_t convolution;
    dnnl_inner_product_desc_t inner_product;
} cpu_operation_desc;

/* What an operation tells of itself. Gradients have the shape and layout of what they belong to. */
typedef struct cpu_problem cpu_problem;
struct cpu_problem {
    const yoke_operation *operation;
    dnnl_memory_desc_t free[CPU_ROLES];   /* shape and type, layout any; bias ndims = 0: none */
    dnnl_memory_desc_t stored[CPU_ROLES]; /* layouts decided already; ndims = 0: not yet */
    const char *const *algorithms;        /* names, ended by NULL; the first always works */
    /* `descs` says for each role how the pass shall have it. */
    dnnl_status_t (*describe)(cpu_operation_desc *desc, const cpu_problem *problem,
                              cpu_direction direction, int algorithm,
                              const dnnl_memory_desc_t *descs);
    /* Bytes to zero before the gradient of a role is written, where a pass writes only part. */
    size_t cleared[CPU_ROLES];
    char key[128]; /* names the shape in the record of choices */
};

/* Gives the problem a bias: plain float32 in every precision. */
yoke_status cpu_bias_desc(cpu_problem *problem, int channels);

/* stored[CPU_INPUT] and [CPU_BIAS] must be set; output and weights are chosen when not. */
yoke_status cpu_weighted_create(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request, cpu_problem *problem);

/* The matrix product, as linear describes it. */
dnnl_status_t cpu_describe_product(cpu_operation_desc *desc, const cpu_problem *problem,
                                   cpu_direction direction, int algorithm,
                                   const dnnl_memory_desc_t *descs);
extern const char *const cpu_product_algorithms[];

/* A convolution with one output pixel, planned as the matrix product it is. `convolution`
 * is complete but for its stored layouts, which come from the request. */
bool cpu_is_one_pixel(const yoke_operation *operation);
yoke_status cpu_plan_one_pixel(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request, const cpu_problem *convolution);

#endif
