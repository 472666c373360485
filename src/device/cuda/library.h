/* SPDX-License-Identifier: Apache-2.0 */
/* The libraries that this room calls. The CUDA runtime is linked in. Opening the first GPU opens
 * cuBLASLt, cuDNN and NCCL, so a program without GPUs does not need them. A call is written
 * cuda_lt()->cublasLtMatmul(...). */
#ifndef DEVICE_CUDA_LIBRARY_H
#define DEVICE_CUDA_LIBRARY_H

#include "base/base.h"

/* The toolkit's headers declare functions without prototypes. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#ifdef YOKE_HAS_CUDNN
#include <cudnn.h>
#else
typedef struct cudnnContext *cudnnHandle_t;
typedef int cudnnStatus_t;
#define CUDNN_STATUS_SUCCESS 0
#endif
#ifdef YOKE_HAS_NCCL
#include <nccl.h>
#endif
#pragma GCC diagnostic pop

#define CUDA_LT_CALLS(X)                                                                           \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulAlgoInit)                                                                      \
    X(cublasLtMatmulAlgoCheck)                                                                     \
    X(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    X(cublasLtMatmulAlgoConfigSetAttribute)                                                        \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)                                                            \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)

#define CUDA_CUDNN_CALLS(X)                                                                        \
    X(cudnnCreate)                                                                                 \
    X(cudnnDestroy)                                                                                \
    X(cudnnGetVersion)                                                                             \
    X(cudnnGetErrorString)                                                                         \
    X(cudnnGetLastErrorString)                                                                     \
    X(cudnnSetStream)                                                                              \
    X(cudnnCreateTensorDescriptor)                                                                 \
    X(cudnnDestroyTensorDescriptor)                                                                \
    X(cudnnSetTensor4dDescriptor)                                                                  \
    X(cudnnCreateFilterDescriptor)                                                                 \
    X(cudnnDestroyFilterDescriptor)                                                                \
    X(cudnnSetFilter4dDescriptor)                                                                  \
    X(cudnnCreateConvolutionDescriptor)                                                            \
    X(cudnnDestroyConvolutionDescriptor)                                                           \
    X(cudnnSetConvolution2dDescriptor)                                                             \
    X(cudnnSetConvolutionGroupCount)                                                               \
    X(cudnnSetConvolutionMathType)                                                                 \
    X(cudnnGetConvolutionForwardAlgorithm_v7)                                                      \
    X(cudnnGetConvolutionBackwardDataAlgorithm_v7)                                                 \
    X(cudnnGetConvolutionBackwardFilterAlgorithm_v7)                                               \
    X(cudnnConvolutionForward)                                                                     \
    X(cudnnConvolutionBackwardData)                                                                \
    X(cudnnConvolutionBackwardFilter)

/* The backend, which computes graphs of operations; a cuDNN without it serves all the same. */
#define CUDA_CUDNN_GRAPH_CALLS(X)                                                                  \
    X(cudnnBackendCreateDescriptor)                                                                \
    X(cudnnBackendDestroyDescriptor)                                                               \
    X(cudnnBackendSetAttribute)                                                                    \
    X(cudnnBackendGetAttribute)                                                                    \
    X(cudnnBackendFinalize)                                                                        \
    X(cudnnBackendExecute)

#define CUDA_NCCL_CALLS(X)                                                                         \
    X(ncclGetVersion)                                                                              \
    X(ncclGetErrorString)                                                                          \
    X(ncclGetLastError)                                                                            \
    X(ncclGetUniqueId)                                                                             \
    X(ncclCommInitRank)                                                                            \
    X(ncclCommFinalize)                                                                            \
    X(ncclCommDestroy)                                                                             \
    X(ncclCommAbort)                                                                               \
    X(ncclCommRegister)                                                                            \
    X(ncclCommDeregister)                                                                          \
    X(ncclMemAlloc)                                                                                \
    X(ncclMemFree)                                                                                 \
    X(ncclCommGetAsyncError)                                                                       \
    X(ncclGroupStart)                                                                              \
    X(ncclGroupEnd)                                                                                \
    X(ncclReduce)                                                                                  \
    X(ncclBroadcast)                                                                               \
    X(ncclReduceScatter)                                                                           \
    X(ncclAllGather)                                                                               \
    X(ncclAllReduce)                                                                               \
    X(ncclSend)                                                                                    \
    X(ncclRecv)

#define CUDA_DECLARE_CALL(name) __typeof__(name) *name;
typedef struct cuda_lt_calls {
    CUDA_LT_CALLS(CUDA_DECLARE_CALL)
} cuda_lt_calls;
#ifdef YOKE_HAS_CUDNN
typedef struct cuda_cudnn_calls {
    CUDA_CUDNN_CALLS(CUDA_DECLARE_CALL)
} cuda_cudnn_calls;
typedef struct cuda_cudnn_graph_calls {
    CUDA_CUDNN_GRAPH_CALLS(CUDA_DECLARE_CALL)
} cuda_cudnn_graph_calls;
#endif
#ifdef YOKE_HAS_NCCL
typedef struct cuda_nccl_calls {
    CUDA_NCCL_CALLS(CUDA_DECLARE_CALL)
} cuda_nccl_calls;
#endif

/* Opens the libraries once in a process. cuBLASLt is required: DEVICE names the missing file and
 * what to install. The others are optional: cuda_cudnn() and cuda_nccl() return NULL if absent, and
 * cuda_library_detail says why. */
yoke_status cuda_libraries_open(void);
const cuda_lt_calls *cuda_lt(void);
#ifdef YOKE_HAS_CUDNN
const cuda_cudnn_calls *cuda_cudnn(void);
const cuda_cudnn_graph_calls *cuda_cudnn_graph(void); /* NULL: this cuDNN has no backend */
#endif
#ifdef YOKE_HAS_NCCL
const cuda_nccl_calls *cuda_nccl(void);
#endif
/* "cuDNN 9.19.0 (/usr/lib/...)", or why there is none; library: "cublasLt", "cudnn", "nccl". */
const char *cuda_library_detail(const char *library);

#endif
