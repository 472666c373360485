/* SPDX-License-Identifier: Apache-2.0 */
/* Predictors: programs of one model that only predict, for several threads at once. They read one
 * set of weights, and each computes in memory of its own. Only where memory is shared. */
#ifndef MODEL_PREDICTOR_H
#define MODEL_PREDICTOR_H

#include <stdatomic.h>

#include "device/device.h"
#include "yoke/model.h"

/* What the predictors of a model share: layouts, algorithms, the newest weights, and what plans
 * make of these beforehand. Its functions need no lock of the caller. */
typedef struct yoke_shared_plans yoke_shared_plans;

/* The devices are open longer, and nobody else uses them. */
typedef struct yoke_shared_plans_options {
    const yoke_model *model;
    yoke_device *planner; /* plans, and measures; it has the compute threads of all predictors */
    yoke_device *weights; /* holds them */
    yoke_precision precision;
    yoke_algorithm algorithm;
    yoke_algorithms *algorithms; /* borrowed */
    int rows;                    /* of the largest forward */
    int plans;                   /* of each predictor, at most; those longest unused go */
} yoke_shared_plans_options;

/* Plans the largest forward, which chooses the layouts, and that of one row, for which algorithms
 * are measured apart. These two plans stay. */
yoke_status yoke_shared_plans_create(yoke_shared_plans **shared,
                                     const yoke_shared_plans_options *options);
void yoke_shared_plans_destroy(yoke_shared_plans *shared); /* after all its predictors */

typedef struct yoke_shared_plans_report {
    size_t weights, packed; /* bytes of all sets */
    int sets, plans;        /* numbers of rows with a plan */
    uint64_t published;
} yoke_shared_plans_report;
void yoke_shared_plans_describe(yoke_shared_plans *shared, yoke_shared_plans_report *report);

/* Weights. */

/* Parameters and running statistics. One thread fills a set; once published nobody changes it, and
 * it goes when a newer one is published and no predictor reads it any more. */
typedef struct yoke_weight_set yoke_weight_set;

yoke_status yoke_weight_set_create(yoke_weight_set **set, yoke_shared_plans *shared);
/* One tensor of the model's table, but no integer: plain float32 in PyTorch's layout. */
yoke_status yoke_weight_set_write(yoke_weight_set *set, int tensor, const float *values);
/* Packs the weights for all plans; then predictors that begin take this set. Frees the set when it
 * fails. */
yoke_status yoke_weight_set_publish(yoke_weight_set *set);
void yoke_weight_set_discard(yoke_weight_set *set); /* instead of publishing; takes NULL */

/* Predictors. */

/* For one thread at a time. */
typedef struct yoke_predictor yoke_predictor;

/* Plans the largest forward, and that of one row. `device` is the predictor's alone. */
yoke_status yoke_predictor_create(yoke_predictor **predictor, yoke_shared_plans *shared,
                                  yoke_device *device);
void yoke_predictor_destroy(yoke_predictor *predictor); /* takes NULL */
/* From begin to end its forwards read the set that is the newest at begin. ARGUMENT: none has been
 * published. */
yoke_status yoke_predictor_begin(yoke_predictor *predictor);
void yoke_predictor_end(yoke_predictor *predictor);
/* Inputs and outputs have room for options.rows, in plain float32. */
float *yoke_predictor_input(const yoke_predictor *predictor, int input);
const float *yoke_predictor_output(const yoke_predictor *predictor, int output);
/* Over the first `rows` rows of the inputs. It plans where it has no plan for so many. */
yoke_status yoke_predictor_forward(yoke_predictor *predictor, int rows);
/* Bytes that it computes in, and the plans it has. Any thread may ask. */
size_t yoke_predictor_bytes(const yoke_predictor *predictor);
int yoke_predictor_plans(const yoke_predictor *predictor);

#endif
