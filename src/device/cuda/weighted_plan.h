/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of convolution and linear, and what plans it: for weighted*.c only. */
#ifndef DEVICE_CUDA_WEIGHTED_PLAN_H
#define DEVICE_CUDA_WEIGHTED_PLAN_H

#include "device/cuda/weighted.h"

typedef struct cuda_weighted {
    yoke_plan base;
    cuda_pass *passes[CUDA_DIRECTIONS];
    cuda_operands operands[CUDA_DIRECTIONS];
    cuda_layout given, input;        /* the producer's layout, the passes' layout */
    bool reordered;                  /* the two differ: the passes read a copy in `saved` */
    cuda_pad_job weights;            /* of the copy with more channels; padded 0: none */
    char names[CUDA_DIRECTIONS][96]; /* of passes with a remark behind their algorithm's name */
    cuda_type type;
    cuda_columns output; /* [rows * height * width, channels] */
    const void *producer_input;
    void *producer_gradient;
    float *weight_gradient; /* where the copy's is cut to */
    float *bias_gradient;
} cuda_weighted;

typedef struct weighted_planner {
    cuda_weighted *self;
    const cuda_weighted_request *request;
    yoke_operation operation; /* the request's, with the channels that the passes read */
    cuda_problem problem;
} weighted_planner;

/* Operands to measure with. */
typedef struct weighted_trial {
    cuda_operands operands;
    void *memory;
} weighted_trial;

/* weighted_pass.c */
extern const char *const cuda_direction_names[CUDA_DIRECTIONS];
yoke_status cuda_weighted_run(const cuda_weighted *self, const cuda_pass *pass,
                              const cuda_operands *operands);
/* How many bytes the aux of the direction's epilogue takes. */
size_t cuda_weighted_aux_bytes(const weighted_planner *planner, cuda_direction direction);
/* Fills the trial's memory and operands; the caller frees the memory. */
yoke_status cuda_weighted_operands(const weighted_planner *planner, cuda_direction direction,
                                   weighted_trial *trial, size_t scratch_bytes);
/* By the request's algorithm `number`; *pass is NULL where it does not exist. */
yoke_status cuda_weighted_try(const weighted_planner *planner, cuda_direction direction, int number,
                              cuda_pass **pass);
/* By the first algorithm that exists; *pass is NULL where none does. */
yoke_status cuda_weighted_try_any(const weighted_planner *planner, cuda_direction direction,
                                  cuda_pass **pass);
/* With the fastest algorithm for the problem as it is: joined or not. */
yoke_status cuda_weighted_choose(const weighted_planner *planner, cuda_direction direction,
                                 cuda_pass **pass);

/* Whether im2col was the only choice. */
yoke_status cuda_weighted_is_only(const weighted_planner *planner, cuda_direction direction,
                                  const cuda_pass *chosen, bool *only);

/* weighted_norms.c: decides which parts of batch norms the passes compute, and changes the problem.
 */
yoke_status cuda_weighted_join_norms(weighted_planner *planner);

/* weighted_joining.c: decides whether the direction's pass is joined, and changes the problem. */
yoke_status cuda_weighted_join(weighted_planner *planner, cuda_direction direction);

static inline size_t cuda_larger(size_t a, size_t b) {
    return a > b ? a : b;
}

#endif
