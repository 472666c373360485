/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that see a whole tensor. The device computes a direction element by element; LAMB scales it
 * to the weights' norm, Muon makes it orthogonal; then the weights go that way.
 *
 * LAMB: You et al. 2020. As in their program, a tensor without weight decay is not scaled.
 * Muon: Jordan et al. 2024, torch.optim.Muon with adjust_lr_fn "match_rms_adamw" (Liu et al. 2025),
 * so that one learning rate serves it and AdamW. For filters: airbench94_muon.py of Jordan's
 * cifar10-airbench. */
#include "optimizer/whole.h"

#include <math.h>

#include "optimizer/orthogonalize.h"

#define PIECE 64 /* floats */

static size_t direction_bytes(const yoke_optimizer_range *range) {
    return (range->elements + PIECE - 1) / PIECE * PIECE * sizeof(float);
}

static bool is_matrix(const yoke_optimizer_range *range) {
    return range->matrix.rows > 0;
}

bool yoke_range_is_whole(const yoke_optimizer_options *options, const yoke_optimizer_range *range) {
    yoke_optimizer_sees sees = yoke_optimizer_rule_of(options->kind)->sees;
    return sees == YOKE_SEES_TENSORS || (sees != YOKE_SEES_ELEMENTS && is_matrix(range));
}

static bool orthogonalizes(const yoke_optimizer_options *options) {
    return yoke_optimizer_rule_of(options->kind)->sees != YOKE_SEES_TENSORS;
}

static bool is_of_filters(const yoke_optimizer_options *options) {
    return yoke_optimizer_rule_of(options->kind)->sees == YOKE_SEES_FILTERS;
}

/* The direction, and then two sums of squares, or the work of the products; then, of filters, where
 * they go and a sum of squares. */
size_t yoke_whole_bytes(const yoke_optimizer_options *options, const yoke_optimizer_range *range) {
    if (!yoke_range_is_whole(options, range)) return 0;
    size_t squares = 2 * yoke_square_sum_doubles(range->elements) * sizeof(double);
    if (!orthogonalizes(options)) return direction_bytes(range) + squares;
    size_t products = yoke_orthogonalize_bytes(&range->matrix);
    size_t filters = is_of_filters(options) ? direction_bytes(range) + squares : 0;
    return direction_bytes(range) + (products > filters ? products : filters);
}

/* direction *= |weights| / |direction| */
static yoke_status scale_to_weights(yoke_device *device, yoke_stream stream,
                                    const yoke_optimizer_range *range, const float *weights,
                                    float *direction, double *squares) {
    double *of_direction = squares + yoke_square_sum_doubles(range->elements);
    if (range->weight_decay == 0) return YOKE_OK;
    TRY(yoke_device_square_sum(device, stream, weights, range->elements, squares));
    TRY(yoke_device_square_sum(device, stream, direction, range->elements, of_direction));
    return yoke_device_rescale(device, stream, direction, range->elements, squares, of_direction,
                               0);
}

void yoke_whole_applies(const yoke_optimizer_options *options, const yoke_optimizer_range *range,
                        yoke_update_scalars *scalars) {
    if (is_of_filters(options))
        scalars->shrink = sqrt((double)range->matrix.rows);
    else if (orthogonalizes(options))
        scalars->rate *= yoke_muon_rate(range->matrix.rows, range->matrix.columns);
    else
        scalars->shrink = 1; /* the direction has the decay */
}

/* Scales filters to the norm sqrt(filters), and goes along the direction. The weights get there in
 * one update, which a closed gate leaves out. work: after the direction's. */
static yoke_status move_filters(yoke_device *device, yoke_stream stream,
                                const yoke_optimizer_range *range, const yoke_update_step *apply,
                                float *weights, const float *direction, void *work) {
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    float *goal = work;
    double *squares = (double *)(void *)((char *)work + direction_bytes(range));
    yoke_update_step along = {.rule = YOKE_UPDATE_APPLY,
                              .scalars = apply->scalars,
                              .slot = apply->slot,
                              .gradient_scale = 1,
                              .applies = true};
    yoke_update_step arrive = *apply;
    arrive.slot = 0; /* the same in every step */
    arrive.scalars.shrink = 0;
    arrive.scalars.rate = -1;
    TRY(yoke_device_copy(device, stream, goal, device, weights, range->elements * sizeof *goal));
    TRY(yoke_device_square_sum(device, stream, goal, range->elements, squares));
    TRY(yoke_device_rescale(device, stream, goal, range->elements, NULL, squares, 0));
    TRY(yoke_device_update(device, stream, &along, goal, direction, none, range->elements));
    return yoke_device_update(device, stream, &arrive, weights, goal, none, range->elements);
}

yoke_status yoke_whole_update(const yoke_optimizer_options *options,
                              const yoke_optimizer_range *range, yoke_device *device,
                              yoke_stream stream, const yoke_update_step *step, float *weights,
                              const float *gradients, float *const states[YOKE_UPDATE_STATES],
                              void *work) {
    float *const none[YOKE_UPDATE_STATES] = {NULL};
    float *direction = work;
    void *rest = (char *)work + direction_bytes(range);
    bool of_matrix = orthogonalizes(options);
    yoke_update_step towards = *step, apply = *step;
    towards.rule = of_matrix ? YOKE_UPDATE_MUON : YOKE_UPDATE_LAMB;
    towards.direction = direction;
    towards.kept_weights = NULL;
    towards.shadow = NULL;
    TRY(yoke_device_update(device, stream, &towards, weights, gradients, states, range->elements));
    if (step->kept_weights != NULL) /* they may go where the gradients were */
        TRY(yoke_device_copy(device, stream, step->kept_weights, device, weights,
                             range->elements * sizeof *weights));
    if (of_matrix)
        TRY(yoke_orthogonalize(device, stream, &range->matrix, yoke_muon_steps(options->kind),
                               direction, rest));
    else
        TRY(scale_to_weights(device, stream, range, weights, direction, rest));
    apply.rule = YOKE_UPDATE_APPLY;
    apply.applies = true;
    apply.gradient_scale = 1;
    apply.kept_weights = NULL;
    for (int i = 0; i < YOKE_UPDATE_STATES; i++)
        apply.kept_states[i] = NULL;
    yoke_whole_applies(options, range, &apply.scalars);
    if (step->slot > 0) apply.slot = step->slot + 1;
    if (is_of_filters(options))
        return move_filters(device, stream, range, &apply, weights, direction, rest);
    return yoke_device_update(device, stream, &apply, weights, direction, none, range->elements);
}

int yoke_muon_steps(yoke_optimizer_kind kind) {
    return kind == YOKE_MUON_FILTERS ? 3 : 5;
}

double yoke_muon_rate(size_t rows, size_t columns) {
    return 0.2 * sqrt((double)(rows > columns ? rows : columns));
}
