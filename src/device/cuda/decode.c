/* The table's pictures. */
#include "device/cuda/cuda.h"

yoke_status cuda_decode(yoke_device *device, const yoke_decode_request *request) {
    TRY(cuda_use(device));
    TRY_CUDA(cuda_of(device),
             cuda_run_decode(request, cuda_of(device)->streams[YOKE_STREAM_COMPUTE]));
    return YOKE_OK;
}
