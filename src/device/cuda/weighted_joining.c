/* SPDX-License-Identifier: Apache-2.0 */
/* A pass of convolution or linear may take over what otherwise follows it in a pass of its own: a
 * bias in bfloat16, the activation behind a linear layer, backward of the one before it, or adding
 * the input's gradient to the one that another reader has contributed. Measures whether that is
 * faster than the two apart. */
#include <stdio.h>

#include "device/cuda/weighted_plan.h"

enum { APART, JOINED, JOININGS };

typedef struct weighted_joining {
    cuda_epilogue epilogue;
    bool adds; /* with no epilogue */
} weighted_joining;

typedef struct joining_trial {
    const weighted_planner *planner;
    cuda_direction direction;
    weighted_joining joining;
    cuda_pass *passes[JOININGS];
    weighted_trial with; /* its operands and memory */
    void *other;         /* as large as the input: its values, or a gradient of it */
    float *partial;
} joining_trial;

static void join(weighted_planner *planner, cuda_direction direction,
                 const weighted_joining *joining) {
    planner->problem.epilogues[direction] = joining->epilogue;
    if (direction == CUDA_BACKWARD_DATA) planner->problem.adds = joining->adds;
}

/* Takes the epilogue if the library has an algorithm with it, and there is none yet. */
static yoke_status try_epilogue(weighted_planner *planner, cuda_direction direction,
                                cuda_epilogue epilogue, weighted_joining *joining) {
    cuda_pass *pass;
    if (joining->epilogue != CUDA_NO_EPILOGUE) return YOKE_OK;
    planner->problem.epilogues[direction] = epilogue;
    yoke_status status = cuda_weighted_try(planner, direction, 0, &pass);
    planner->problem.epilogues[direction] = CUDA_NO_EPILOGUE;
    TRY(status);
    if (pass == NULL) return YOKE_OK;
    pass->destroy(pass);
    joining->epilogue = epilogue;
    return YOKE_OK;
}

/* In float32 the library adds the bias of every product. */
static bool wants_bias(const weighted_planner *planner, cuda_direction direction) {
    return direction == CUDA_FORWARD && planner->problem.type != CUDA_FLOAT32 &&
           planner->request->plan->operation->bias && planner->request->joined[CUDA_BIAS] != NULL;
}

/* Whether the request offers what the epilogue computes. Backward of an activation that reads its
 * input needs that. */
static bool is_offered(const weighted_planner *planner, cuda_direction direction,
                       cuda_epilogue epilogue) {
    const yoke_plan_request *request = planner->request->plan;
    const cuda_epilogue_traits *traits = &cuda_epilogues[epilogue];
    bool behind = direction == CUDA_FORWARD && traits->activates;
    bool before = direction == CUDA_BACKWARD_DATA && traits->derives;
    const yoke_operation *activation = behind   ? request->next[0]
                                       : before ? request->previous
                                                : NULL;
    if (planner->request->joined[epilogue] == NULL || activation == NULL ||
        activation->kind != YOKE_OP_ACTIVATION || activation->activation != traits->activation)
        return false;
    if (before) /* the library rounds sums to the output's type; a bias's gradient is float32 */
        return !traits->sums || (request->input_bias && planner->problem.type == CUDA_FLOAT32);
    bool reads_input =
        request->next_backward && !cuda_activation_reads_output((int)traits->activation);
    return traits->aux == CUDA_MASK ? request->next_linear
                                    : reads_input == (traits->aux == CUDA_INPUT);
}

/* What the request offers and the library has. */
static yoke_status find_joining(weighted_planner *planner, cuda_direction direction,
                                weighted_joining *joining) {
    const yoke_plan_request *request = planner->request->plan;
    bool data = direction == CUDA_BACKWARD_DATA;
    bool can_add = request->operation->kind != YOKE_OP_CONV_TRANSPOSE2D; /* no forward pass adds */
    *joining = (weighted_joining){.adds = data && can_add && request->input_shared &&
                                          request->previous == NULL && !planner->self->reordered};
    for (int i = 0; i < CUDA_EPILOGUES; i++)
        if (is_offered(planner, direction, (cuda_epilogue)i))
            TRY(try_epilogue(planner, direction, (cuda_epilogue)i, joining));
    return YOKE_OK;
}

static cuda_columns input_columns(const weighted_planner *planner) {
    yoke_dims input = planner->problem.operation->input;
    size_t channels = (size_t)input.channels;
    size_t pixels = (size_t)planner->problem.rows * (cuda_dims_count(input) / channels);
    return (cuda_columns){pixels, channels, channels};
}

/* What follows the pass where it is not joined. */
static yoke_status queue_follower(const joining_trial *trial) {
    const weighted_planner *planner = trial->planner;
    cuda_device *device = planner->problem.device;
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    const cuda_operands *operands = &trial->with.operands;
    cuda_columns input = input_columns(planner), output = planner->self->output;
    size_t input_elements = input.rows * input.columns;
    const cuda_epilogue_traits *epilogue = &cuda_epilogues[trial->joining.epilogue];
    cuda_activation_job job = {.to = epilogue->aux == CUDA_INPUT ? operands->beside.aux
                                                                 : operands->output,
                               .from = operands->output,
                               .activation = (int)epilogue->activation,
                               .type = planner->problem.type,
                               .elements = output.rows * output.columns};
    if (trial->joining.adds) {
        TRY_CUDA(device, cuda_run_accumulate(trial->other, operands->input, job.type,
                                             input_elements, stream));
        return YOKE_OK;
    }
    if (trial->joining.epilogue == CUDA_BIAS) return YOKE_OK; /* the pass itself has added it */
    if (trial->direction == CUDA_FORWARD) {
        TRY_CUDA(device, cuda_run_activation(&job, stream));
        return YOKE_OK;
    }
    /* Backward of the activation, and the bias's gradient if the joined pass would sum it up. */
    job.to = operands->input;
    job.from = operands->input;
    job.kept = trial->other;
    job.elements = input_elements;
    const cuda_column_sums sums = {.values = operands->input,
                                   .type = job.type,
                                   .shape = input,
                                   .sums = operands->beside.sums,
                                   .partial = trial->partial};
    TRY_CUDA(device, cuda_run_activation_backward(&job, stream));
    if (epilogue->sums) TRY_CUDA(device, cuda_run_column_sums(&sums, stream));
    return YOKE_OK;
}

static yoke_status run_joining(void *context, int candidate) {
    const joining_trial *trial = context;
    cuda_operands operands = trial->with.operands;
    operands.add = candidate == JOINED && trial->joining.adds;
    TRY(cuda_weighted_run(trial->planner->self, trial->passes[candidate], &operands));
    return candidate == JOINED ? YOKE_OK : queue_follower(trial);
}

/* Copies one value of the compute type between the host and the first place of an operand. */
static yoke_status copy_first(const joining_trial *trial, void *to, const void *from,
                              enum cudaMemcpyKind way) {
    cuda_device *device = trial->planner->problem.device;
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    size_t bytes = cuda_type_bytes(trial->planner->problem.type);
    TRY_CUDA(device, cudaMemcpyAsync(to, from, bytes, way, stream));
    TRY_CUDA(device, cudaStreamSynchronize(stream));
    return YOKE_OK;
}

/* Whether a NaN of the first row passes the library's activation, as it passes Yoke's: one that
 * becomes 0 would hide a network that has diverged. */
static yoke_status keeps_nan(const joining_trial *trial, bool *keeps) {
    const cuda_operands *operands = &trial->with.operands;
    static const struct {
        uint32_t nan, all_but_sign, infinity;
    } bits[] = {[CUDA_FLOAT32] = {0x7fc00000u, 0x7fffffffu, 0x7f800000u},
                [CUDA_BFLOAT16] = {0x7fc0u, 0x7fffu, 0x7f80u},
                [CUDA_FLOAT16] = {0x7e00u, 0x7fffu, 0x7c00u}};
    cuda_type type = trial->planner->problem.type;
    const uint32_t nan = bits[type].nan;
    uint32_t before = 0, after = 0;
    TRY(copy_first(trial, &before, operands->input, cudaMemcpyDeviceToHost));
    TRY(copy_first(trial, operands->input, &nan, cudaMemcpyHostToDevice));
    TRY(cuda_weighted_run(trial->planner->self, trial->passes[JOINED], operands));
    TRY(copy_first(trial, &after, operands->output, cudaMemcpyDeviceToHost));
    TRY(copy_first(trial, operands->input, &before, cudaMemcpyHostToDevice));
    *keeps = (after & bits[type].all_but_sign) > bits[type].infinity; /* a NaN */
    return YOKE_OK;
}

/* The library may offer an algorithm with an epilogue that then does not run. */
static yoke_status open_joinings(weighted_planner *planner, joining_trial *trial,
                                 cuda_candidate *candidates) {
    static const weighted_joining apart;
    size_t columns =
        cuda_aligned(CUDA_COLUMN_PARTS * input_columns(planner).columns * sizeof(float));
    size_t input = cuda_aligned(input_columns(planner).rows * input_columns(planner).columns *
                                cuda_type_bytes(planner->problem.type));
    size_t scratch_bytes = 0;
    for (int i = 0; i < JOININGS; i++) {
        join(planner, trial->direction, i == JOINED ? &trial->joining : &apart);
        yoke_status status = cuda_weighted_choose(planner, trial->direction, &trial->passes[i]);
        bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(planner->problem.device);
        if (i == APART || !refused) TRY(status);
        if (trial->passes[i] == NULL) continue;
        candidates[i].run = run_joining;
        scratch_bytes = cuda_larger(scratch_bytes, cuda_aligned(trial->passes[i]->scratch_bytes));
    }
    TRY(cuda_weighted_operands(planner, trial->direction, &trial->with,
                               scratch_bytes + input + columns));
    trial->other = (char *)trial->with.operands.scratch + scratch_bytes;
    trial->partial = (float *)(void *)((char *)trial->other + input);
    /* A joined pass that turns a NaN into 0, or does not run, takes no part. */
    bool keeps = false;
    if (candidates[JOINED].run == NULL || !cuda_epilogues[trial->joining.epilogue].activates)
        return YOKE_OK;
    yoke_status status = keeps_nan(trial, &keeps);
    if (!keeps) candidates[JOINED].run = NULL;
    bool refused = status == YOKE_ERROR_DEVICE && !cuda_poisoned(trial->planner->problem.device);
    return refused ? YOKE_OK : status;
}

static yoke_status compare_joining(weighted_planner *planner, cuda_direction direction,
                                   const weighted_joining *joining, cuda_tuning *tuning,
                                   cuda_candidate *candidates, int *best) {
    joining_trial trial = {.planner = planner, .direction = direction, .joining = *joining};
    yoke_status status = open_joinings(planner, &trial, candidates);
    tuning->context = &trial;
    if (status == YOKE_OK) status = cuda_measure(tuning, best);
    yoke_device_free(&planner->problem.device->base, trial.with.memory);
    for (int i = 0; i < JOININGS; i++)
        if (trial.passes[i] != NULL) trial.passes[i]->destroy(trial.passes[i]);
    return status;
}

/* Sets *joined to whether the direction's pass is faster with `joining`. */
static yoke_status decide(weighted_planner *planner, cuda_direction direction,
                          const weighted_joining *joining, bool *joined) {
    char key[256];
    snprintf(key, sizeof key, "%s %s%s", planner->request->key, cuda_direction_names[direction],
             cuda_epilogues[joining->epilogue].follower);
    cuda_candidate candidates[JOININGS] = {
        [APART] = {.name = joining->adds ? "added by a pass of its own" : "apart"},
        [JOINED] = {.name = joining->adds ? "added by the same pass" : "joined"}};
    cuda_tuning tuning = {.device = planner->problem.device,
                          .request = planner->request->plan,
                          .key = key,
                          .candidates = candidates,
                          .count = JOININGS};
    int best = APART;
    bool settled;
    TRY(cuda_settled(&tuning, &settled, &best));
    if (!settled) TRY(compare_joining(planner, direction, joining, &tuning, candidates, &best));
    *joined = best == JOINED;
    join(planner, direction, *joined ? joining : &(weighted_joining){0});
    return YOKE_OK;
}

/* Decides whether a direction's pass is joined. It counts this layer's time alone: forward with an
 * aux pays for writing it, and what it saves backward counts where backward is decided. An
 * activation that stays apart leaves the bias. */
yoke_status cuda_weighted_join(weighted_planner *planner, cuda_direction direction) {
    weighted_joining joining;
    bool joined = false;
    TRY(find_joining(planner, direction, &joining));
    if (joining.adds || joining.epilogue != CUDA_NO_EPILOGUE)
        TRY(decide(planner, direction, &joining, &joined));
    if (joined || !wants_bias(planner, direction)) return YOKE_OK;
    joining = (weighted_joining){0};
    TRY(try_epilogue(planner, direction, CUDA_BIAS, &joining));
    return joining.epilogue == CUDA_BIAS ? decide(planner, direction, &joining, &joined) : YOKE_OK;
}
