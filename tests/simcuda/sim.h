/* SPDX-License-Identifier: Apache-2.0 */
/* The simulated CUDA, for its own files and its tests. Implements the functions of the toolkit's
 * own headers (cuda_runtime_api.h, cublasLt.h, cudnn.h, nccl.h) on the host: N devices with
 * separate memory, asynchronous streams, and CUDA's and NCCL's rules enforced as errors with the
 * call site.
 *
 *   devices.cpp, order.cpp, copies.cpp, capture.cpp: the runtime's functions, by subject, on
 *   lock, schedule, streams, wait, memory, fault_signal, handles, settings and errors
 *   contexts.cpp                                a GPU's contexts, and what poisons one
 *   kernels.cpp, kernel.h                       runs a kernel's threads on the host
 *   cublaslt.cpp, cudnn.cpp, nccl.cpp           the libraries, on `enqueue` and `enqueue_joint`
 *
 * What it cannot show: speed, warps, weak memory order of a GPU, drivers. */
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

namespace sim {

/* Settings, read once from the environment (this is a test tool) or set by a test before the first
 * call: SIMCUDA_DEVICES (default 8), SIMCUDA_MEMORY (bytes a device, default 1 GiB),
 * SIMCUDA_SCHEDULER = "seeded" (default: one thread, a seeded choice among the streams that can
 * run, virtual clock, device memory closed to the host by mprotect) or "threads" (one thread a
 * stream, for TSan), SIMCUDA_SEED, SIMCUDA_LATE (1: seeded, and a host's wait runs only what it
 * needs), SIMCUDA_FAULT, SIMCUDA_PEERS ("all", "none", "corrupt": copies between peers get a byte
 * wrong), SIMCUDA_RACECHECK (each GPU thread a TSan fiber),
 * SIMCUDA_DEADLOCK_MS (default 20000: how long a host may wait while nothing at all happens),
 * SIMCUDA_LEAKS ("ignore": no report at exit). Under TSan the default scheduler is "threads". */
struct Settings {
    int devices;
    size_t memory_bytes;
    bool threads;
    uint64_t seed;
    bool late;
    bool relu_keeps_nan;
    bool peers, corrupt_peers;
    bool racecheck;
    int deadlock_ms;
    bool count; /* SIMCUDA_COUNT=1: counts work instead of doing it (counted.h) */
};
const Settings &settings();

/* Every simulated function begins with it: counts the call and answers the code it must fail with,
 * 0 to go on. SIMCUDA_FAULT="cudaMalloc@17=2;ncclReduce@5=6": the 17th cudaMalloc answers 2.
 * "*@40=x": the 40th call of all answers the failure code that is natural to its library. An index
 * "*" is every call. A trailing "!" makes a runtime error sticky: nothing that is queued runs any
 * more, and every later call of the runtime answers it; "cudnnCreate@1=700!": the same, from within
 * a library, which answers a status of its own. `natural` is that code. Calls that give something
 * back do so even when they fail. */
int fault(const char *call, int natural);

/* Counting and planting from a test's own code. */
void count_collective(size_t bytes); /* of a call of NCCL, for control.h */
uint64_t calls_so_far();             /* fallible calls counted since the last reset */
uint64_t calls_of(const char *call); /* those of one name */
std::string calls_list();            /* one line for each name */
void fail_call(uint64_t index);      /* the index-th from now on fails; 0: none */
const char *failed_call();           /* the name of the one that did, or NULL */
uint64_t works_so_far();             /* kernels, copies and fills that streams were given */
size_t outstanding(void);       /* allocations, streams, events, graphs, handles not given back */
std::string outstanding_list(); /* one line each with the call site */
int sticky_error(); /* what every call answers: the planted one, or the context's, or 0 */

/* A context of the driver has a number as a device has: that of memory, streams and errors. */
int gpu_of(int context);
int context_error(int context);
void poison_running_context(); /* of the kernel that calls it */

/* Work in a stream. `what` is for reports. cost_ns is virtual time. Capturing streams record it.
 * The work may touch the memory of the stream's device and of peers it has access to, no other. */
using Work = std::function<void()>;
cudaError_t enqueue(cudaStream_t stream, const char *what, uint64_t cost_ns, Work work);
/* Runs when all streams have reached it, once; all go on when it is done (a collective). */
cudaError_t enqueue_joint(const std::vector<cudaStream_t> &streams, const char *what,
                          uint64_t cost_ns, Work work);
/* The same, stream by stream: one that has joined goes no further until all `streams` have, so that
 * a host which waits for it hears of the deadlock when one is missing, or when they joined two in
 * different orders. After cancel all go on, and the work is not done. */
using Joint = std::shared_ptr<struct JointState>;
Joint open_joint(const char *what, size_t streams, uint64_t cost_ns, Work work);
cudaError_t join(const Joint &joint, cudaStream_t stream);
void cancel(const Joint &joint);

/* What cudaGetLastError of this host thread answers next. The runtime's functions call it and no
 * library does: each real one has a runtime of its own linked into it, with errors of its own. */
void remember(cudaError_t code);
int current_device(); /* of the calling host thread */
int stream_device(cudaStream_t stream);
int pointer_device(const void *pointer); /* -1: not device memory */
/* Both ends of the range lie in one live allocation of `device` (or of a peer it may reach);
 * otherwise a violation naming `what`. */
void check_range(int device, const void *pointer, size_t bytes, const char *what);

/* A broken rule: prints "simcuda: ..." with a backtrace to stderr and aborts, so no test can pass
 * over it. */
[[noreturn]] void violation(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Handles of the libraries count as outstanding until destroyed. */
void adopt(const void *handle, const char *kind);
void disown(const void *handle);

/* Kernels. */
struct Launch {
    unsigned blocks, threads;
    bool barriers; /* the kernel calls __syncthreads or a shuffle */
};
/* Runs every GPU thread of a launch on the calling OS thread, block after block in a drawn order.
 */
void run_kernel(const Launch &launch, const std::function<void()> &body);
/* One block of it, when it counts. */
void run_block_of(const Launch &launch, unsigned number, const std::function<void()> &body);
/* What the LAUNCH macros of kernel.h come to. Failures wait for cudaGetLastError. `code` and
 * `parameters` tell launches apart when it counts. */
void launch_kernel(const char *name, const Launch &launch, cudaStream_t stream,
                   std::function<void()> body, void (*code)() = nullptr,
                   std::string parameters = {});

} // namespace sim

#endif
