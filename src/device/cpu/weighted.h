/* Operations with weights, convolution and linear: output = input * weights + bias. One plan serves
 * both: it has a forward pass and one for the gradient of the data and of the weights, and for each
 * the algorithm and layouts that measured best. */
#ifndef DEVICE_CPU_WEIGHTED_H
#define DEVICE_CPU_WEIGHTED_H

#include "device/cpu/pass.h"

typedef struct cpu_algorithm {
    const char *name;
    dnnl_alg_kind_t kind; /* oneDNN's; undef with tiles */
    bool tiles;           /* Winograd's, of winograd.h */
} cpu_algorithm;
extern const cpu_algorithm cpu_product_algorithms[]; /* of the matrix product */

/* What an operation tells of itself. Gradients have the shape and layout of what they belong to. */
typedef struct cpu_problem {
    cpu_operation operation;           /* but for direction, algorithm, descriptors and hint */
    const cpu_desc *free[CPU_ROLES];   /* shape and type, layout any; no bias: NULL */
    const cpu_desc *stored[CPU_ROLES]; /* layouts decided already; NULL: not yet */
    const cpu_algorithm *algorithms;   /* ended by a NULL name; the first always works */
    /* Bytes to zero before the gradient of a role is written, where a pass writes only part. */
    size_t cleared[CPU_ROLES];
    char key[128]; /* names the shape in the record of choices */
} cpu_problem;

/* The shape of `desc` in another type, layout any. */
yoke_status cpu_free_desc(const cpu_desc **desc, cpu_device *device, const cpu_desc *shape,
                          dnnl_data_type_t type);
/* The layout that the problem's direct forward pass in `type` gives to an argument. */
yoke_status cpu_ask_forward(const cpu_desc **desc, cpu_device *device, const cpu_problem *problem,
                            dnnl_data_type_t type, int argument);
/* Gives the problem a bias: plain float32 in every precision. */
yoke_status cpu_bias_desc(cpu_problem *problem, cpu_device *device, int channels);

/* stored[CPU_INPUT] and [CPU_BIAS] must be set; output and weights are chosen when not. */
yoke_status cpu_weighted_create(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request, cpu_problem *problem);

/* A convolution with one output pixel, planned as the matrix product it is. `convolution` lacks
 * only its stored layouts, which come from the request. */
bool cpu_is_one_pixel(const yoke_operation *operation);
yoke_status cpu_plan_one_pixel(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request, const cpu_problem *convolution);

#endif
