/* What users of NCCL share: groups of one process and communicators of several. */
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

/* How far the last call of a communicator is: ncclInProgress until it is queued. */
ncclResult_t cuda_nccl_state(ncclComm_t communicator);
/* The same, when it is known or the time has come. */
ncclResult_t cuda_nccl_settle(ncclComm_t communicator, uint64_t deadline_ns);
uint64_t cuda_nccl_deadline(int timeout_ms);
/* "nccl 2.28.9" */
ncclResult_t cuda_nccl_name(char *name, size_t size);
/* What NCCL says of a failure; ncclInProgress: of a deadline that has passed. */
const char *cuda_nccl_cause(ncclResult_t result, int timeout_ms, char text[CUDA_NCCL_CAUSE_BYTES]);

#endif
#endif
