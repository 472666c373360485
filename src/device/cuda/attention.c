/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head attention over the packed projections [q | k | v]: by Yoke's own kernels, or in
 * bfloat16 by a plan of cuDNN's backend. Each direction chooses by itself: what forward leaves for
 * backward is the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/attention_graph.h"
#include "device/cuda/kernel_plan.h"

#define PLAN_NAME "cuDNN plan"
enum { FORWARD, BACKWARD, WAYS, PLANS = 4, CANDIDATES = 1 + PLANS };

typedef struct attention_plan {
    cuda_kernel_plan kernel;
    size_t workspace_at; /* in scratch, behind the products of backward */
#ifdef YOKE_HAS_CUDNN
    cuda_graph_plan *graphs[WAYS]; /* NULL: own kernels */
#endif
} attention_plan;

static cuda_attention_job job_of(const cuda_kernel_plan *plan) {
    const yoke_operation *operation = &plan->base.operation;
    const yoke_plan_binding *at = &plan->base.binding;
    return (cuda_attention_job){.rows = (int)plan->base.rows,
                                .heads = operation->heads,
                                .positions = operation->output.height,
                                .size = operation->output.channels / operation->heads,
                                .type = plan->type,
                                .causal = operation->causal,
                                .input = at->inputs[0],
                                .output = at->output,
                                .log_sum = plan->base.needs.saved_bytes > 0 ? at->saved : NULL,
                                .output_gradient = at->output_gradient,
                                .input_gradient = at->input_gradients[0],
                                .product = at->scratch};
}

static yoke_status run_own(cuda_device *device, const cuda_attention_job *job, int way) {
    cudaStream_t stream = device->streams[YOKE_STREAM_COMPUTE];
    TRY_CUDA(device, way == BACKWARD ? cuda_run_attention_backward(job, stream)
                                     : cuda_run_attention(job, stream));
    return YOKE_OK;
}

static size_t statistics_bytes(const cuda_attention_job *job) {
    return sizeof(float) * (size_t)job->rows * (size_t)job->heads * (size_t)job->positions;
}

#ifndef YOKE_HAS_CUDNN

static yoke_status run(const cuda_kernel_plan *plan, int way) {
    const cuda_attention_job job = job_of(plan);
    return run_own(plan->device, &job, way);
}

static yoke_status choose(attention_plan *self, const yoke_plan_request *request, int way) {
    (void)self, (void)request, (void)way;
    return YOKE_OK;
}

static void attention_destroy(yoke_plan *plan) {
    yoke_free(plan);
}

static size_t workspace_bytes(const attention_plan *self) {
    (void)self;
    return 0;
}

#else

static yoke_status run(const cuda_kernel_plan *plan, int way) {
    const attention_plan *self = (const attention_plan *)plan;
    const cuda_attention_job job = job_of(plan);
    if (self->graphs[way] == NULL) return run_own(plan->device, &job, way);
    return cuda_attention_graph_run(self->graphs[way], &job, way == BACKWARD,
                                    (char *)plan->base.binding.scratch + self->workspace_at);
}

static void attention_destroy(yoke_plan *plan) {
    attention_plan *self = (attention_plan *)plan;
    for (int way = 0; way < WAYS; way++)
        cuda_graph_plan_destroy(self->graphs[way]);
    yoke_free(self);
}

static size_t workspace_bytes(const attention_plan *self) {
    size_t most = 0;
    for (int way = 0; way < WAYS; way++)
        if (self->graphs[way] != NULL && cuda_graph_plan_workspace(self->graphs[way]) > most)
            most = cuda_graph_plan_workspace(self->graphs[way]);
    return most;
}

/* Choosing. */

/* The candidates of one direction: own kernels, and plans of the graph. */
typedef struct contest {
    cuda_device *device;
    cuda_attention_job job; /* with operands where it measures */
    int way;
    bool statistics;
    cuda_graph_rules rules;
    cuda_graph *graph;
    cuda_graph_plan *plans[CANDIDATES];
    char names[CANDIDATES][CUDA_GRAPH_TEXT_BYTES + sizeof PLAN_NAME + 1];
    cuda_candidate candidates[CANDIDATES];
    void *memory, *workspace;
} contest;

static yoke_status run_candidate(void *context, int candidate) {
    const contest *self = context;
    if (self->plans[candidate] == NULL) return run_own(self->device, &self->job, self->way);
    return cuda_attention_graph_run(self->plans[candidate], &self->job, self->way == BACKWARD,
                                    self->workspace);
}

static yoke_status describe(contest *self) {
    if (self->graph != NULL) return YOKE_OK;
    return cuda_attention_graph_create(&self->graph, self->device, &self->job,
                                       self->way == BACKWARD, self->statistics);
}

static yoke_status make_plan(contest *self, const char *text, int candidate) {
    TRY(cuda_graph_plan_create(&self->plans[candidate], self->graph, &self->rules, text));
    if (self->plans[candidate] == NULL) return YOKE_OK;
    snprintf(self->names[candidate], sizeof self->names[candidate], PLAN_NAME " %s", text);
    self->candidates[candidate] = (cuda_candidate){self->names[candidate], run_candidate};
    return YOKE_OK;
}

static yoke_status make_plans(contest *self, int count) {
    cuda_graph_list list;
    TRY(describe(self));
    if (self->graph == NULL) return YOKE_OK;
    TRY(cuda_graph_offers(self->graph, &self->rules, count, &list));
    for (int i = 0; i < list.count && i < count; i++)
        TRY(make_plan(self, list.texts[i], 1 + i));
    return YOKE_OK;
}

/* A yoke_algorithm_names.take. */
static yoke_status take_recorded(void *taker, const char *name, int *candidate) {
    contest *self = taker;
    size_t length = strlen(PLAN_NAME);
    char text[CUDA_GRAPH_TEXT_BYTES];
    *candidate = strcmp(name, self->candidates[0].name) == 0 ? 0 : -1;
    if (*candidate == 0 || strncmp(name, PLAN_NAME " ", length + 1) != 0) return YOKE_OK;
    name += length + 1;
    if (strcspn(name, " ") >= sizeof text) return YOKE_OK;
    memcpy(text, name, strcspn(name, " "));
    text[strcspn(name, " ")] = '\0';
    TRY(describe(self));
    if (self->graph != NULL) TRY(make_plan(self, text, 1));
    if (self->plans[1] != NULL) *candidate = 1;
    return YOKE_OK;
}

/* Backward in one order may want the scores of all pairs, of 16 bits: the library's workspace may
 * be as large, up to 1 GiB. */
static size_t workspace_limit(const cuda_attention_job *job) {
    const size_t least = CUDA_WORKSPACE_BYTES, most = (size_t)1 << 30;
    size_t bytes = least + (size_t)job->rows * (size_t)job->heads * (size_t)job->positions *
                               (size_t)job->positions * sizeof(uint16_t);
    return bytes < most ? bytes : most;
}

/* Both directions' operands, and a forward pass whose statistics backward reads. */
static yoke_status provide_operands(contest *self) {
    cuda_attention_job *job = &self->job;
    size_t output = cuda_aligned((size_t)job->rows * (size_t)job->heads * (size_t)job->positions *
                                 (size_t)job->size * cuda_type_bytes(job->type));
    size_t statistics = cuda_aligned(statistics_bytes(job)), workspace = 0;
    for (int i = 0; i < CANDIDATES; i++)
        if (self->plans[i] != NULL && cuda_graph_plan_workspace(self->plans[i]) > workspace)
            workspace = cuda_graph_plan_workspace(self->plans[i]);
    size_t values = 8 * output;
    TRY(yoke_device_allocate(&self->device->base, values + 2 * statistics + workspace, "measuring",
                             &self->memory));
    char *at = self->memory;
    job->input = at;
    job->input_gradient = at + 3 * output;
    job->output = at + 6 * output;
    job->output_gradient = at + 7 * output;
    job->log_sum = self->statistics ? (float *)(void *)(at + values) : NULL;
    job->product = (float *)(void *)(at + values + statistics);
    self->workspace = at + values + 2 * statistics;
    cudaStream_t stream = self->device->streams[YOKE_STREAM_COMPUTE];
    TRY_CUDA(self->device,
             cuda_run_probe(at, job->type, values / cuda_type_bytes(job->type), stream));
    return run_own(self->device, job, FORWARD);
}

static yoke_status measure(contest *self, cuda_tuning *tuning, int *best) {
    TRY(make_plans(self, PLANS));
    TRY(provide_operands(self));
    tuning->count = CANDIDATES;
    return cuda_measure(tuning, best);
}

static yoke_status decide(contest *self, const yoke_plan_request *request, int *best) {
    const cuda_attention_job *job = &self->job;
    char key[128];
    bool settled;
    snprintf(key, sizeof key, "attention %d x %d of %d%s%s %s", job->heads, job->positions,
             job->size, job->causal ? " causal" : "", self->statistics ? "" : " alone",
             self->way == BACKWARD ? "backward"
                                   : "forward"); /* a plan means the same for any rows */
    self->candidates[0] = (cuda_candidate){"own kernels", run_candidate};
    self->candidates[1].name = PLAN_NAME;
    cuda_tuning tuning = {.device = self->device,
                          .request = request,
                          .key = key,
                          .candidates = self->candidates,
                          .count = 2,
                          .context = self,
                          .take = take_recorded,
                          .taker = self};
    TRY(cuda_settled(&tuning, &settled, best));
    if (!settled) return measure(self, &tuning, best);
    return *best > 0 && self->plans[*best] == NULL ? make_plans(self, 1) : YOKE_OK;
}

static yoke_status choose(attention_plan *self, const yoke_plan_request *request, int way) {
    static const char *const names[] = {"own kernels", PLAN_NAME};
    contest of = {.device = self->kernel.device,
                  .job = job_of(&self->kernel),
                  .way = way,
                  .statistics = self->kernel.base.needs.saved_bytes > 0,
                  .rules = {.atomics = false}};
    int best = 0;
    if (!cuda_attention_graph_serves(of.device, &of.job, way == BACKWARD)) return YOKE_OK;
    of.rules.workspace_limit = workspace_limit(&of.job);
    yoke_status status = decide(&of, request, &best);
    for (int i = 0; i < CANDIDATES; i++)
        if (status != YOKE_OK || i != best) cuda_graph_plan_destroy(of.plans[i]);
    cuda_graph_destroy(of.graph);
    yoke_device_free(&of.device->base, of.memory);
    TRY(status);
    self->graphs[way] = of.plans[best];
    self->kernel.base.algorithms[way == BACKWARD ? YOKE_BACKWARD_DATA : YOKE_FORWARD] =
        names[self->graphs[way] != NULL];
    return YOKE_OK;
}

#endif

static yoke_status attention_forward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    (void)stream; /* the compute stream */
    return run(plan, FORWARD);
}

static yoke_status attention_backward(const cuda_kernel_plan *plan, cudaStream_t stream) {
    (void)stream;
    return run(plan, BACKWARD);
}

static yoke_status attention_prepare(cuda_kernel_plan *plan, const yoke_plan_request *request) {
    attention_plan *self = (attention_plan *)plan;
    const cuda_attention_job job = job_of(plan);
    plan->base.destroy = attention_destroy;
    if (job.size > CUDA_ATTENTION_SIZE)
        return FAIL(YOKE_ERROR_DEVICE, "heads of %d features; on a GPU they have at most %d",
                    job.size, CUDA_ATTENTION_SIZE);
    yoke_plan_needs *needs = &plan->base.needs;
    bool trains = request->training && request->input_gradient;
    if (trains) {
        needs->saved_bytes = statistics_bytes(&job);
        self->workspace_at = cuda_aligned(needs->saved_bytes);
    }
    TRY(choose(self, request, FORWARD));
    if (trains) TRY(choose(self, request, BACKWARD));
    needs->scratch_bytes += self->workspace_at + workspace_bytes(self);
    return YOKE_OK;
}

yoke_status cuda_plan_attention(yoke_plan **plan, cuda_device *device,
                                const yoke_plan_request *request) {
    static const cuda_kernel_operation calls = {1, YOKE_READS_INPUT | YOKE_READS_OUTPUT,
                                                attention_prepare, attention_forward,
                                                attention_backward};
    return cuda_kernel_plan_create(plan, sizeof(attention_plan), device, request, &calls);
}
