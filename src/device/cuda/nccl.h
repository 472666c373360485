/* What groups of one process and communicators of several share of NCCL. */
#ifndef DEVICE_CUDA_NCCL_H
#define DEVICE_CUDA_NCCL_H

#include "device/cuda/cuda.h"

#ifdef YOKE_HAS_NCCL

#define CUDA_NCCL_TIMEOUT_MS 60000
#define CUDA_NCCL_CAUSE_BYTES 192

static inline bool cuda_nccl_is_failure(ncclResult_t result) {
    return result != ncclSuccess && result != ncclInProgress;
}

static inline cudaStream_t cuda_nccl_stream(yoke_device *device) {
    return cuda_of(device)->streams[YOKE_STREAM_COMMUNICATION];
}

/* The state of a communicator's latest call: ncclInProgress until it is queued. */
ncclResult_t cuda_nccl_state(ncclComm_t communicator);
/* Polls the state until it is not ncclInProgress, or until the deadline. */
ncclResult_t cuda_nccl_settle(ncclComm_t communicator, uint64_t deadline_ns);
uint64_t cuda_nccl_deadline(int timeout_ms);
/* "nccl 2.28.9" */
ncclResult_t cuda_nccl_name(char *name, size_t size);
/* The text of a failure; ncclInProgress stands for a missed deadline. */
const char *cuda_nccl_cause(ncclResult_t result, int timeout_ms, char text[CUDA_NCCL_CAUSE_BYTES]);

#endif
#endif
