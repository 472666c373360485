/* SPDX-License-Identifier: Apache-2.0 */
/* What predictors share, for this room's files only. */
#ifndef MODEL_SHARED_PLANS_H
#define MODEL_SHARED_PLANS_H

#include <pthread.h>

#include "model/program.h"

/* What plans of one node make of its weights in the same way. */
typedef struct yoke_packed_form {
    int node;
    uint64_t form;
    size_t bytes;
    int users; /* shared plans that read it; 0: this entry is free */
} yoke_packed_form;

/* The plans of one number of rows. Nobody runs them: they say what to pack, and pack it. */
typedef struct yoke_shared_plan {
    struct yoke_shared_plan *next;
    yoke_program *program;
    int rows, users; /* programs of predictors, and threads that pack */
    int *forms;      /* [nodes]: index of the form that the node's plan reads; NONE: none */
} yoke_shared_plan;

struct yoke_weight_set {
    yoke_shared_plans *shared;
    yoke_weight_set *next;
    yoke_replica_memory memory; /* parameters, buffers, shadow */
    void **packed;              /* [form_limit] */
    uint64_t number;            /* 1, 2, ... as they are published; 0: it is not yet */
    size_t bytes, packed_bytes;
};

struct yoke_shared_plans {
    yoke_shared_plans_options options;
    yoke_flat *flat;
    bool reads_shadow;
    int form_limit;
    /* One thread plans at a time: the record of algorithms is no safer. Who holds both took this
     * one first. */
    pthread_mutex_t planning;
    /* Guards every field below. A thread that plans, runs or packs a set which is not published yet
     * does not hold it. */
    pthread_mutex_t turn;
    yoke_packed_form *forms; /* [form_limit] */
    yoke_shared_plan *plans;
    yoke_weight_set *sets; /* all that live */
    yoke_predictor *predictors;
    uint64_t published;
    _Atomic(yoke_weight_set *) newest; /* NULL: none was published */
    atomic_int old;                    /* published sets but for the newest */
    atomic_bool leaver; /* a predictor left one of those while another thread had the turn */
};

struct yoke_predictor {
    yoke_shared_plans *shared;
    yoke_predictor *next;
    yoke_device *device;
    yoke_replica_memory
        memory; /* inputs and outputs; of the weights, those of the latest binding */
    yoke_region arena, scratch; /* of the first program; others that need more have their own */
    struct yoke_predictor_program *programs; /* [count] */
    int count;
    uint64_t calls;
    _Atomic(yoke_weight_set *) reads; /* from begin to end; NULL: nothing */
    atomic_size_t bytes;
    atomic_int plans; /* count, for other threads */
};

void yoke_shared_lock(yoke_shared_plans *shared);
/* Frees the old sets that nobody reads any more, if a predictor has left one meanwhile. */
void yoke_shared_unlock(yoke_shared_plans *shared);

/* A program of options.model for so many rows, on this device. One thread at a time. */
yoke_status yoke_shared_plan_program(yoke_shared_plans *shared, yoke_device *device, int rows,
                                     yoke_program **program);
/* The plan for so many rows, which stays until it is released. All published sets have what it
 * reads. */
yoke_status yoke_shared_plan_take(yoke_shared_plans *shared, int rows, yoke_shared_plan **plan);
void yoke_shared_plan_release(yoke_shared_plans *shared, yoke_shared_plan *plan);
/* The same by a thread that has the turn. */
void yoke_shared_plan_drop(yoke_shared_plans *shared, yoke_shared_plan *plan);
/* A plan that reads this form. */
yoke_shared_plan *yoke_shared_plan_with(const yoke_shared_plans *shared, int form);

/* weight_set.c, by a thread that has the turn. add: the memory of a form, not yet written. */
yoke_status yoke_weight_set_add(yoke_weight_set *set, int form, void **memory);
void yoke_weight_set_forget(yoke_weight_set *set, int form);
void yoke_weight_sets_sweep(yoke_shared_plans *shared);

#endif
