/* SPDX-License-Identifier: Apache-2.0 */
/* Operations with weights, convolution and linear: output = input * weights + bias. One kind of
 * plan for both: a forward pass, a pass for the gradient of the data and one for the gradient of
 * the weights, each with the algorithm and layouts that were fastest when measured. */
#ifndef DEVICE_CPU_WEIGHTED_H
#define DEVICE_CPU_WEIGHTED_H

#include "device/cpu/pass.h"

typedef struct cpu_algorithm {
    const char *name;
    dnnl_alg_kind_t kind; /* oneDNN's; undef for Yoke's own */
    /* NULL: oneDNN. Yoke's own read and write every operand in its stored layout. */
    cpu_create_pass *create;
} cpu_algorithm;
extern const cpu_algorithm cpu_product_algorithms[]; /* of the matrix product */

/* A batch norm with running statistics behind a convolution, folded into its weights and bias. */
typedef struct cpu_fold {
    size_t channels; /* 0: none */
    float epsilon;
    bool bias;               /* the convolution has one */
    const cpu_desc *weights; /* laid out alike before and after */
} cpu_fold;

/* The description of an operation. A gradient has the shape and layout of its value. */
typedef struct cpu_problem {
    cpu_operation operation;           /* without direction, algorithm, descriptors and hint */
    const cpu_desc *free[CPU_ROLES];   /* shape and type, any layout; no bias: NULL */
    const cpu_desc *stored[CPU_ROLES]; /* layouts already decided; NULL: not yet */
    /* The weights in bfloat16, which forward and the gradient of the data read in place of those in
     * float32; NULL: none. */
    const cpu_desc *shadow;
    const cpu_algorithm *algorithms; /* the list ends with a NULL name; the first always works */
    cpu_fold fold;
    int computes_next; /* operations of the request that the fold and the epilogue compute */
    bool bias_apart;   /* forward: the plan adds the bias, no primitive does */
    bool by_factors;   /* factors.h computes the gradient of the weight, where its layout fits */
    /* Bytes to zero before the gradient of a role is written, where a pass writes only part. */
    size_t cleared[CPU_ROLES];
    char key[YOKE_CONVOLUTION_KEY_BYTES]; /* names the shape in the record of algorithms */
} cpu_problem;

/* Gives the problem the fold and the epilogue that the request offers, or the first part of them,
 * where oneDNN computes it with the kernel that computes the problem alone. added: request.added as
 * the problem's output would have it. */
yoke_status cpu_join_next(cpu_problem *problem, cpu_device *device,
                          const yoke_plan_request *request, const cpu_desc *added);

/* The folded weights and bias, [channels]. */
typedef struct cpu_folded {
    float *weights, *bias;
} cpu_folded;
yoke_status cpu_fold_norm(const cpu_fold *fold, cpu_device *device,
                          const yoke_plan_binding *binding, const cpu_folded *to);

/* The layout that the problem's direct forward pass in `type` chooses for an argument. */
yoke_status cpu_query_forward(const cpu_desc **desc, cpu_device *device, const cpu_problem *problem,
                              dnnl_data_type_t type, int argument);
/* Gives the problem a bias: plain float32 in every precision. */
yoke_status cpu_bias_desc(cpu_problem *problem, cpu_device *device, int channels);

/* stored[CPU_INPUT] and stored[CPU_BIAS] must be set; planning chooses those of output and weights
 * that are NULL. */
yoke_status cpu_weighted_create(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request, cpu_problem *problem);

/* A convolution with one output pixel, planned as the matrix product it is. `convolution` has no
 * stored layouts yet; they come from the request. */
bool cpu_is_one_pixel(const yoke_operation *operation);
yoke_status cpu_plan_one_pixel(yoke_plan **plan, cpu_device *device,
                               const yoke_plan_request *request, const cpu_problem *convolution);

#endif
