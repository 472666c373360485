/* SPDX-License-Identifier: Apache-2.0 */
/* A program: all plans of a model for one number of rows, for training or inference, with the
 * places of all values; for this room's files only. */
#ifndef MODEL_PROGRAM_H
#define MODEL_PROGRAM_H

#include "model/graph.h"

/* The arena: memory shared by values that do not live at the same time. */

/* A block of memory that is needed from step `begin` to step `end`, both included; between the
 * steps `pause` and `resume` it is not, if there are any. */
typedef struct yoke_storage {
    size_t bytes;
    int begin, end;
    int pause, resume; /* pause >= resume: it is needed throughout */
    size_t offset;     /* set by yoke_arena_place, a multiple of 64 */
} yoke_storage;

typedef struct yoke_arena {
    yoke_storage *storages;
    int count, capacity;
    size_t bytes; /* of the whole */
} yoke_arena;

/* Reserves room for `capacity` storages, so that adding cannot fail. */
yoke_status yoke_arena_create(yoke_arena *arena, int capacity);
void yoke_arena_destroy(yoke_arena *arena);
int yoke_arena_add(yoke_arena *arena, size_t bytes, int step);
void yoke_arena_use(yoke_arena *arena, int storage, int step); /* extends its life to `step` */
/* It is not needed behind `pause` and before `resume`. */
void yoke_arena_rest(yoke_arena *arena, int storage, int pause, int resume);
/* Sets every storage's offset; two that live at the same step never overlap. Greedy by size, best
 * fit (Pisarchyk and Lee 2020, "greedy by size"). */
yoke_status yoke_arena_place(yoke_arena *arena);

/* Places. */

/* The place of a value or gradient: a storage of the arena, or one of the replica's buffers. The
 * place of input k is YOKE_PLACE_INPUTS - k; likewise of outputs and their gradients. */
typedef int yoke_place;
enum {
    YOKE_PLACE_NOWHERE = -1,
    YOKE_PLACE_INPUTS = -2,
    YOKE_PLACE_OUTPUTS = YOKE_PLACE_INPUTS - YOKE_INPUTS_LIMIT,
    YOKE_PLACE_OUTPUT_GRADIENTS = YOKE_PLACE_OUTPUTS - YOKE_OUTPUTS_LIMIT
};

typedef struct yoke_node_places {
    yoke_place saved;
    yoke_place output_gradient, input_gradients[YOKE_PLAN_INPUTS];
    bool adds_input_gradient; /* the plan adds to the gradient of input 0 */
    int computed_by;          /* another node, whose plan writes the output; NONE */
    bool skips_backward;      /* of an activation: the plan behind has done it */
    int previous;    /* the node before an activation whose backward the plan computes; NONE */
    bool skips_bias; /* the gradient of tensor 1: the plan behind the activation has written it */
    int norm_behind, norm_before; /* of which the plan computes a part, or NONE */
    int summed_by, applied_by;    /* of a norm: the nodes whose plans compute a part, or NONE */
    /* For a tensor that another node has contributed to already: the plan writes its contribution
     * here, and a later action adds it. NOWHERE: the plan writes the flat gradient. */
    yoke_place contributions[YOKE_PLAN_PARAMETERS];
} yoke_node_places;

/* Backward: a list of actions. */

typedef enum yoke_action_kind {
    YOKE_ACTION_BACKWARD,
    YOKE_ACTION_AGAIN,      /* the forward of node `again` */
    YOKE_ACTION_ACCUMULATE, /* to += from: second reader of a value */
    YOKE_ACTION_COPY,       /* to = from */
    YOKE_ACTION_SUM         /* the flat gradient of `tensor` += from: second user of a tensor */
} yoke_action_kind;

typedef struct yoke_action {
    yoke_action_kind kind;
    int node;   /* the node whose backward it belongs to */
    int value;  /* accumulate, copy: the value whose gradient it is */
    int tensor; /* sum */
    int again;
    yoke_place to, from;
    void *to_address; /* set by yoke_program_bind */
    const void *from_address;
    size_t elements; /* sum */
} yoke_action;

/* Programs. */

typedef struct yoke_region {
    void *address;
    size_t bytes;
} yoke_region;

typedef struct yoke_program_request {
    const yoke_model *model;
    yoke_device *device;
    yoke_precision precision;
    yoke_algorithm algorithm;
    int rows, most_rows; /* of this program, and of the largest */
    bool training;
    bool inference;               /* no program of this model trains */
    bool input_gradients;         /* backward also computes the gradient of the model's input */
    const bool *frozen;           /* [tensors]; NULL: none */
    const bool *fixed_statistics; /* [tensors] of running means; NULL: none */
    const yoke_flat *flat;        /* NULL: the plans choose the layouts of parameters */
    yoke_algorithms *algorithms;
    yoke_norm_group *norm_group;
    yoke_operation_hook before_operation;
    bool recomputes;   /* cut a model without marks into ranges whose values are not kept */
    bool outputs_only; /* no step wants the loss: no plan computes it */
} yoke_program_request;

/* Of one kind of steps. */
typedef struct yoke_program_recordings {
    yoke_recording *forward, *loss;
    yoke_recording **segments; /* [segment_count] */
    int segment_count;         /* recorded so far */
} yoke_program_recordings;

typedef struct yoke_program {
    const yoke_model *model;
    yoke_device *device;
    int rows;
    yoke_precision precision;
    bool training, input_gradients;
    bool outputs_only;
    bool reads_image; /* input 0 from the replica's `image` */
    yoke_operation_hook before_operation;
    const bool *frozen;           /* [tensors]; NULL: none */
    const bool *fixed_statistics; /* [tensors] of running means; NULL: none */
    bool *requires_gradient;      /* [values] */
    yoke_plan **plans;            /* [nodes] */
    yoke_plan *loss;              /* the loss */
    yoke_operation loss_operation;
    int loss_node; /* the node whose plan computes the loss in a step with loss_only, or NONE */
    yoke_layout *layouts;    /* [values] */
    yoke_layout *parameters; /* [tensors]: as the plans use them */
    unsigned *forms;         /* [tensors]: in which the plans read them */
    yoke_plan **factored;    /* [tensors]: whose backward keeps factors of the gradient, or NULL */

    yoke_place *values;       /* [values] */
    yoke_node_places *places; /* [nodes] */
    bool recomputes;
    int *again, *backward; /* [nodes] steps of recompute.c; again: NONE unless it runs again */
    yoke_place loss_saved;
    /* [inputs] after backward, in plain layout; NOWHERE unless requested */
    yoke_place gradients_of_inputs[YOKE_INPUTS_LIMIT];
    yoke_arena arena;
    yoke_action *actions;
    int action_count;
    int *segment_ends; /* [buckets]: number of actions up to the end of each segment */
    size_t scratch_bytes;

    yoke_region own_arena, own_scratch; /* used if the replica's are too small */
    const yoke_region *kept; /* the replica's, of the plans that keep something, in order */
    void *arena_base;        /* in use */
    void *const *packed;     /* [nodes] for the bindings of the plans; NULL: they have their own */

    /* On devices that record. Where a plan computes the loss, [1] are the recordings of steps with
     * loss_only, and [0] are made once somebody wants outputs; elsewhere [0] serve all steps. */
    yoke_program_recordings recorded[2];
} yoke_program;

/* Creates the plans; then `yoke_program_schedule` places all values, and `yoke_program_bind` fixes
 * addresses. */
yoke_status yoke_program_create(yoke_program **program, const yoke_program_request *request);
void yoke_program_destroy(yoke_program *program);
yoke_status yoke_program_schedule(yoke_program *program, const yoke_flat *flat);
yoke_status yoke_program_bind(yoke_program *program, const yoke_flat *flat,
                              const yoke_replica_memory *memory, void *arena, void *scratch);
/* yoke_plan_pack of a node's plan, from the parameters and running statistics in `memory`. The
 * program need not be scheduled, and may run meanwhile. */
yoke_status yoke_program_pack(const yoke_program *program, const yoke_flat *flat,
                              const yoke_replica_memory *memory, int node, void *packed);
/* Again those plans that read or write output 0 or its gradient, whose memory is there now, where a
 * plan computes the loss. */
yoke_status yoke_program_bind_outputs(const yoke_program *program, const yoke_flat *flat,
                                      const yoke_replica_memory *memory, void *scratch);
/* Records forward, loss and every segment: of the steps whose outputs have memory, unless that is
 * done. */
yoke_status yoke_program_record(yoke_program *program, const yoke_flat *flat,
                                const yoke_replica_memory *memory);
bool yoke_program_reads_shadow(const yoke_program *program);
void *yoke_program_address(const yoke_program *program, const yoke_replica_memory *memory,
                           yoke_place place);

/* Whether forward runs the node's plan: no other plan does its work. */
bool yoke_program_computes(const yoke_program *program, int node);
yoke_status yoke_program_forward(yoke_program *program, const yoke_flat *flat,
                                 const yoke_replica_memory *memory, const yoke_plan_step *step);
yoke_status yoke_program_loss(yoke_program *program, const yoke_plan_step *step);
yoke_status yoke_program_segment(yoke_program *program, int segment, const yoke_plan_step *step);
/* Only the batch norms, of a participant without rows. */
yoke_status yoke_program_idle_forward(yoke_program *program, int done);
yoke_status yoke_program_idle_segment(yoke_program *program, int segment);
yoke_status yoke_program_action(yoke_program *program, const yoke_action *action,
                                const yoke_plan_step *step);

/* recompute.c: time steps: step i is the forward of node i, step node_count is the loss, then
 * follows backward, last node first, with the forwards that run again for it. automatic: cuts a
 * model without marks. */
yoke_status yoke_plan_steps(yoke_program *program, bool automatic);

/* backward.c: which values require a gradient: those that a parameter which trains precedes, or
 * with input_gradients all. A node runs backward if its output is one of them. It trains if one of
 * its parameters is not frozen. */
void yoke_program_mark_gradients(yoke_program *program);
bool yoke_program_requires_input_gradient(const yoke_program *program, const yoke_node *node);
bool yoke_program_trains(const yoke_program *program, const yoke_node *node);
bool yoke_program_runs_backward(const yoke_program *program, const yoke_node *node);
/* Whether a later node reads input 0, too: it contributes to the gradient first. */
bool yoke_program_shares_input(const yoke_program *program, int index);

/* neighbours.c: the node that reads `value`, or NONE: there are several, or none. The one that
 * writes it; NONE: an input of the model. */
int yoke_reading_node(const yoke_model *model, int value);
int yoke_writing_node(const yoke_model *model, int value);

/* joins.c: what a plan may do for its neighbours; and what they then leave out, before values are
 * placed. */
void yoke_offer_joins(const yoke_program *program, int node, yoke_plan_request *request);
void yoke_place_joins(yoke_program *program);
/* What the plan of a node computes behind its own operation: nodes in their order, the batch norm
 * among them, and the value that is added; NONE: there is none. */
typedef struct yoke_next_nodes {
    int nodes[YOKE_PLAN_NEXT], count;
    int norm, added, adder; /* the node that adds it */
} yoke_next_nodes;
yoke_next_nodes yoke_nodes_behind(const yoke_program *program, int node);
/* Whether nobody but the adder reads what is added any more: the output may take its place. */
bool yoke_adds_in_place(const yoke_program *program, int node);

/* norms.c: the parts of batch norms that other plans may compute; who computes which,
 * before values are placed; and the value that the node's plan reads as this input. */
void yoke_offer_norms(const yoke_program *program, int node, yoke_plan_request *request);
void yoke_place_norms(yoke_program *program);
int yoke_program_reads(const yoke_program *program, int node, int input);
/* Whether a batch norm computes with its running statistics in training, too. */
bool yoke_program_fixes_norm(const yoke_program *program, int node);

/* lifetimes.c: places values and what plans save. backward.c: places gradients and lists the
 * actions. */
yoke_status yoke_place_values(yoke_program *program);
yoke_status yoke_plan_backward_actions(yoke_program *program, const yoke_flat *flat);

/* Flat. */

/* layouts: of every tensor of the table, chosen by on the root first plans. */
typedef struct yoke_flat_request {
    const yoke_model *model;
    yoke_device *device;
    const yoke_layout *layouts;
    const unsigned *forms;                   /* likewise */
    size_t first_bucket_bytes, bucket_bytes; /* 0: 1 MiB and 4 MiB */
    int bucket_parts;                        /* 0: 1 */
    const bool *frozen;                      /* [tensors]; NULL: none */
} yoke_flat_request;
yoke_status yoke_flat_create(yoke_flat **flat, const yoke_flat_request *request);
void yoke_flat_destroy(yoke_flat *flat);
bool yoke_is_frozen(const bool *frozen, int tensor);                          /* NULL: none is */
const yoke_parameter *yoke_flat_parameter(const yoke_flat *flat, int tensor); /* NULL: none */
/* The last node in backward order that contributes to the gradient of this tensor. */
int yoke_completing_node(const yoke_model *model, int tensor);

/* The replica. */

struct yoke_replica {
    const yoke_model *model;    /* whose parameters it has, and whose rows it has room for */
    const yoke_model *selected; /* of the programs to come: the same, or another of its tensors */
    const bool *untrained;      /* [tensors] without a gradient in steps of the selected model */
    yoke_replica_options options;
    bool borrows_parameters, borrows_gradients;
    yoke_flat *own_flat; /* the root's */
    const yoke_flat *flat;
    yoke_replica_memory memory;
    yoke_region arena, scratch; /* shared by all programs that fit */
    yoke_region *kept; /* [kept_count] what layers keep between forwards, of every program */
    int kept_count;
    yoke_program **programs;
    int program_count, program_capacity;
    yoke_program *current;  /* of the latest forward; NULL: none yet */
    bool shadow_is_current; /* where updates write it, too */
    yoke_plan_step last_step;
};

/* The selected model's program for these rows; NULL unless prepared. */
yoke_program *yoke_replica_program(const yoke_replica *replica, int rows, bool training);
/* Saves and restores the running statistics. The caller frees *saved, also after a failure. */
yoke_status yoke_replica_save_buffers(const yoke_replica *replica, float **saved);
yoke_status yoke_replica_restore_buffers(const yoke_replica *replica, const float *saved);

#endif
