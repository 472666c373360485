/* SPDX-License-Identifier: Apache-2.0 */
/* Names of PyTorch 1.8 to 2.15 and of NCCL 2.4 and later: ncclAllReduceRingLLKernel_sum_f32,
 * ncclKernel_AllReduce_RING_LL_Sum_float, ncclDevKernel_AllReduce_Sum_f32_RING_LL. */
#include "doctor/event_names.h"

#include <string.h>

#define HOST "cpu_op"
#define MARK "user_annotation"
#define KERNEL "kernel"
#define COPY "gpu_memcpy"
#define NO_STAGE YOKE_STAGE_COUNT

static const doctor_name names[] = {
    {MARK, "ProfilerStep#", DOCTOR_BEGINS, DOCTOR_STEP, NO_STAGE, 0},
    {MARK, "enumerate(DataLoader)#", DOCTOR_BEGINS, DOCTOR_SPAN, YOKE_STAGE_LOAD, 0},
    {MARK, "Optimizer.step#", DOCTOR_BEGINS, DOCTOR_SPAN, YOKE_STAGE_UPDATE, DOCTOR_OPTIMIZER},
    {MARK, "Optimizer.zero_grad#", DOCTOR_BEGINS, DOCTOR_SPAN, YOKE_STAGE_UPDATE, 0},
    {MARK, "DistributedDataParallel.forward", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_FORWARD,
     DOCTOR_DDP | DOCTOR_FORWARD},
    {MARK, "DataParallel.forward", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_FORWARD,
     DOCTOR_DP | DOCTOR_FORWARD},
    {MARK, "FullyShardedDataParallel.forward", DOCTOR_BEGINS, DOCTOR_SPAN, YOKE_STAGE_FORWARD,
     DOCTOR_FSDP | DOCTOR_FORWARD},
    {MARK, "FSDP::", DOCTOR_BEGINS, DOCTOR_NOTHING, NO_STAGE, DOCTOR_FSDP},
    {MARK, "gloo:all_reduce", DOCTOR_IS, DOCTOR_COLLECTIVE, YOKE_STAGE_ALL_REDUCE, 0},
    {MARK, "mpi:all_reduce", DOCTOR_IS, DOCTOR_COLLECTIVE, YOKE_STAGE_ALL_REDUCE, 0},
    {MARK, "ucc:all_reduce", DOCTOR_IS, DOCTOR_COLLECTIVE, YOKE_STAGE_ALL_REDUCE, 0},
    /* nn.DataParallel's functions, and those of their gradients. */
    {HOST, "Scatter", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_SCATTER, DOCTOR_DP},
    {HOST, "GatherBackward", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_SCATTER, DOCTOR_DP},
    {HOST, "Broadcast", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_REPLICATE, DOCTOR_DP},
    {HOST, "Gather", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_GATHER, DOCTOR_DP},
    {HOST, "BroadcastBackward", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_REDUCE, DOCTOR_DP},
    {HOST, "ReduceAddCoalesced", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_REDUCE, DOCTOR_DP},
    /* Backward. */
    {HOST, "autograd::engine::evaluate_function:", DOCTOR_BEGINS, DOCTOR_SPAN, YOKE_STAGE_BACKWARD,
     0},
    {HOST, "torch::autograd::AccumulateGrad", DOCTOR_IS, DOCTOR_GRADIENT, YOKE_STAGE_BACKWARD, 0},
    {HOST, "c10d::allreduce_", DOCTOR_IS, DOCTOR_CALL, YOKE_STAGE_ALL_REDUCE, 0},
    {HOST, "torch.distributed.ddp.reducer::copy_bucket_to_grad", DOCTOR_IS, DOCTOR_SPAN,
     YOKE_STAGE_ALL_REDUCE, 0},
    /* Losses. */
    {HOST, "aten::cross_entropy_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::nll_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::nll_loss_nd", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::mse_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::l1_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::smooth_l1_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::huber_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::binary_cross_entropy", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::binary_cross_entropy_with_logits", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS,
     DOCTOR_LOSS_ROWS},
    {HOST, "aten::kl_div", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    {HOST, "aten::ctc_loss", DOCTOR_IS, DOCTOR_SPAN, YOKE_STAGE_LOSS, DOCTOR_LOSS_ROWS},
    /* Operations. */
    {HOST, "aten::linear", DOCTOR_IS, DOCTOR_OPERATION, NO_STAGE, DOCTOR_ROWS},
    {HOST, "aten::conv1d", DOCTOR_IS, DOCTOR_OPERATION, NO_STAGE, DOCTOR_ROWS},
    {HOST, "aten::conv2d", DOCTOR_IS, DOCTOR_OPERATION, NO_STAGE, DOCTOR_ROWS},
    {HOST, "aten::conv3d", DOCTOR_IS, DOCTOR_OPERATION, NO_STAGE, DOCTOR_ROWS},
    {HOST, "record_param_comms", DOCTOR_IS, DOCTOR_NOTHING, NO_STAGE, 0},
    {HOST, "", DOCTOR_BEGINS, DOCTOR_OPERATION, NO_STAGE, 0},
    /* GPUs. */
    {"cuda_runtime", "", DOCTOR_BEGINS, DOCTOR_LAUNCH, NO_STAGE, 0},
    {"cuda_driver", "", DOCTOR_BEGINS, DOCTOR_LAUNCH, NO_STAGE, 0},
    {KERNEL, "ncclDevKernel_Broadcast", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REPLICATE,
     DOCTOR_NCCL},
    {KERNEL, "ncclKernel_Broadcast", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REPLICATE, DOCTOR_NCCL},
    {KERNEL, "ncclBroadcast", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REPLICATE, DOCTOR_NCCL},
    {KERNEL, "ncclDevKernel_Reduce_", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REDUCE, DOCTOR_NCCL},
    {KERNEL, "ncclKernel_Reduce_", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REDUCE, DOCTOR_NCCL},
    {KERNEL, "ncclReduceRing", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_REDUCE, DOCTOR_NCCL},
    {KERNEL, "nccl", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_ALL_REDUCE, DOCTOR_NCCL},
    {KERNEL, "", DOCTOR_BEGINS, DOCTOR_WORK, NO_STAGE, 0},
    {COPY, "Memcpy HtoD", DOCTOR_BEGINS, DOCTOR_WORK, YOKE_STAGE_LOAD, DOCTOR_FROM_HOST},
    {COPY, "Memcpy PtoP", DOCTOR_BEGINS, DOCTOR_WORK, NO_STAGE, DOCTOR_PEER},
    {COPY, "", DOCTOR_BEGINS, DOCTOR_WORK, NO_STAGE, 0},
    {"gpu_memset", "", DOCTOR_BEGINS, DOCTOR_WORK, NO_STAGE, 0},
};

static bool fits(const doctor_name *row, const kineto_event *event) {
    if (row->match == DOCTOR_IS) return json_slice_is(event->name, row->name);
    return json_slice_begins(event->name, row->name);
}

const doctor_name *doctor_name_of(const kineto_event *event) {
    json_slice category = event->category;
    /* Before PyTorch 2.0 annotations were operations of the category cpu_op or Operator, launches
     * Runtime, and what GPUs do Kernel, Memcpy and Memset. */
    static const struct {
        const char *old, *now;
    } renamed[] = {{"Operator", HOST},
                   {"Runtime", "cuda_runtime"},
                   {"Kernel", KERNEL},
                   {"Memcpy", COPY},
                   {"Memset", "gpu_memset"}};
    bool host = json_slice_is(category, HOST) || json_slice_is(category, "Operator");
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (json_slice_is(category, renamed[i].old))
            category = (json_slice){renamed[i].now, strlen(renamed[i].now)};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const doctor_name *row = &names[i];
        bool of_host = host && strcmp(row->category, MARK) == 0;
        if ((of_host || json_slice_is(category, row->category)) && fits(row, event)) return row;
    }
    return NULL;
}
