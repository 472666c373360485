/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The devices of one machine. With no GPU the CPU poses as N devices: each has memory of its own,
 * a fixed share of the cores and the threads to use them.
 */
#ifndef YOKE_DEVICE_H
#define YOKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The number format of the computation. */
typedef enum yoke_precision {
    YOKE_FLOAT32,  /**< IEEE float32 throughout. */
    YOKE_BFLOAT16, /**< bfloat16; master weights, gradients and reductions stay float32. */
    YOKE_TF32,     /**< CUDA: float32, with TensorFloat-32 in products and convolutions. */
    YOKE_FLOAT16   /**< IEEE float16, otherwise as bfloat16; its range is small, so the gradient of
                        the loss is scaled (yoke_data_parallel_options.loss_scale). CPU devices
                        compute in float32 and round to float16: for correctness, not for speed. */
} yoke_precision;

/** How gradients and weights travel between GPUs; CPU devices share their memory. */
typedef enum yoke_collectives {
    YOKE_COLLECTIVES_AUTO, /**< NCCL where it is available, copies otherwise. */
    YOKE_COLLECTIVES_NCCL, /**< NCCL, one GPU a replica. */
    YOKE_COLLECTIVES_COPY  /**< Peer copies and sums in a fixed order; replicas may share a GPU. */
} yoke_collectives;

/** How to choose the algorithm of a layer. */
typedef enum yoke_algorithm {
    YOKE_ALGORITHM_MEASURED, /**< The fastest of those that compute the same bits in every run:
                                  timed once, on the root, for all replicas. */
    YOKE_ALGORITHM_DIRECT,   /**< By a fixed rule: every run computes the same bits. */
    YOKE_ALGORITHM_FASTEST   /**< Measured, and GPUs may take algorithms that add in another order
                                  in each run: two runs may compute different bits. */
} yoke_algorithm;

/** Open devices. */
typedef struct yoke_devices yoke_devices;

/** Which devices to open. yoke_devices_open reads it during the call only. */
typedef struct yoke_devices_options {
    size_t struct_size; /**< sizeof(yoke_devices_options). */
    const char *list; /**< "auto", "4xcpu", "cpu,cpu", "2xcuda", "4xcuda:0"; the first one listed is
                           the root. NULL: "auto", which is every usable GPU, or one CPU device.
                           Behind it perhaps variants of GPU kernels, "2xcuda+mapped": see
                           docs/cuda.md. */
    int threads;      /**< Compute threads per device; 0: cores / devices, at least 1. */
    bool unbound;     /**< Do not bind workers to cores. */
    int local_rank;   /**< With local_world > 0: this process among those of the machine. It opens
                           one device: entry local_rank % entries of the list, or CPU device
                           local_rank with its share of the cores. */
    int local_world;  /**< Processes that share the machine; 0: open the whole list. */
    int shards;       /**< With threads 0: a CPU device gets cores / shards threads, at least 1,
                           whatever the number of devices (yoke_data_parallel_options.shards). */
    const char *cores; /**< "0-3,8": the cores that threads work on for these devices: compute
                            threads, workers, loaders made for the devices, and a thread that calls
                            an engine, until the call returns or calls back. With `unbound` each
                            thread may use all of them. NULL: every core that the thread which
                            opens the devices may run on. */
} yoke_devices_options;

/** The defaults. */
#define YOKE_DEVICES_OPTIONS_INIT                                                                  \
    { sizeof(yoke_devices_options), NULL, 0, false, 0, 0, 0, NULL }

/** One open device. */
typedef struct yoke_device_info {
    size_t struct_size;   /**< sizeof(yoke_device_info). */
    char name[32];        /**< "cpu:0" */
    char description[96]; /**< Model of the processor or GPU. */
    int threads;          /**< Compute threads. */
    int first_core;       /**< First core the device is bound to; -1: unbound. */
    int core_count;       /**< Cores it is bound to. */
    size_t memory_bytes;  /**< Physical memory it can draw on; CPU devices share theirs. */
    bool bfloat16;        /**< The processor computes in bfloat16 natively. */
    char uuid[48];        /**< GPU: "GPU-1c2d..."; "" otherwise. */
    char pci_id[20];      /**< GPU: "0000:3b:00.0"; "" otherwise. */
    int capability;       /**< GPU: compute capability, 90 for 9.0; 0 otherwise. */
    size_t memory_free;   /**< GPU: free bytes at the time of the call; 0 otherwise. */
    bool code;            /**< GPU: this build has code for it, or PTX to compile. */
    char note[128];       /**< GPU: a peculiarity and what Yoke does about it; "" otherwise. */
    int multiprocessors;  /**< GPU: streaming multiprocessors; 0 otherwise. */
    char variants[96];    /**< GPU: the variants of the list, "+mapped"; "" otherwise. */
    char cores[256];      /**< The cores it is bound to, "0-3,8"; of a GPU those near it, where its
                               worker runs; "": unbound, or any. */
    char nodes[32];       /**< The memory nodes (NUMA) of these cores, "1", or "0-1" of cores of two
                               nodes; "" where the machine has one node. */
} yoke_device_info;

/** All zero but the size. */
#define YOKE_DEVICE_INFO_INIT                                                                      \
    {                                                                                              \
        sizeof(yoke_device_info), {0}, {0}, 0, 0, 0, 0, false, {0}, {0}, 0, 0, false, {0}, 0, {0}, \
            {0}, {                                                                                 \
            0                                                                                      \
        }                                                                                          \
    }

/** Opens every device of the list, or none.
 *
 * @param[out] devices  The devices; close them with yoke_devices_close. NULL on failure.
 * @param options       NULL: the defaults.
 * @return ARGUMENT: a list is malformed; the text quotes the offending part and the forms allowed.
 *         Or the process may not run on a core of `cores`; the text names it. DEVICE: this build or
 *         machine lacks a device; the text names it.
 */
YOKE_API yoke_status yoke_devices_open(yoke_devices **devices, const yoke_devices_options *options);

/** Closes devices. Engines, loaders and groups that use them must be destroyed first.
 *
 * Where an engine left a thread behind that hangs (yoke_data_parallel_options.deadline), all of
 * them stay open, for that thread.
 *
 * @param devices  May be NULL.
 */
YOKE_API void yoke_devices_close(yoke_devices *devices);

/** The number of open devices.
 *
 * @param devices  Open devices.
 * @return At least 1; NULL: 0.
 */
YOKE_API int yoke_devices_count(const yoke_devices *devices);

/** Describes one device.
 *
 * @param devices    Open devices.
 * @param index      Position in the list; 0 is the root.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such device, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_devices_describe(const yoke_devices *devices, int index,
                                           yoke_device_info *info);

/** What opening these devices has changed in the process, for a log. CPU devices compute by oneDNN,
 * which prints on stdout where the environment has ONEDNN_VERBOSE or DNNL_VERBOSE, and version 3
 * prints its errors by itself. The first CPU device of a process ends that by dnnl_set_verbose(0),
 * which holds for all users of oneDNN in the process; a program that wants these lines calls
 * dnnl_set_verbose(1) afterwards. What fails in oneDNN is a status with its word in the text.
 *
 * @param devices  Open devices.
 * @return One line without a newline, which is static; "": nothing, or devices is NULL.
 */
YOKE_API const char *yoke_devices_note(const yoke_devices *devices);

/** Waits until every device has done all that was queued on it: torch.cuda.synchronize. Calls on
 * GPUs return when their work is queued, so a clock that times steps stops behind this call. CPU
 * devices have nothing to wait for.
 *
 * @param devices  Open devices.
 * @return ARGUMENT: `devices` is NULL. DEVICE: a device failed in what it did since.
 */
YOKE_API yoke_status yoke_devices_synchronize(const yoke_devices *devices);

/** Whether the devices of a list are too unequal for shards of equal size: nn.DataParallel's
 * warning. The rule is PyTorch's: one device has less than three quarters of another's memory, or
 * else of its multiprocessors. CPU devices divide the cores equally.
 *
 * @param devices    Open devices.
 * @param[out] text  [bytes]: a sentence that names both devices and what each has; "" when they are
 *                   equal enough. 192 bytes hold it.
 * @param bytes      Of text.
 * @return ARGUMENT: a pointer is NULL.
 */
YOKE_API yoke_status yoke_devices_imbalance(const yoke_devices *devices, char *text, size_t bytes);

/** How one device reads another's memory. */
typedef enum yoke_peer_path {
    YOKE_PEER_SAME,   /**< It is its own memory, or the two share theirs. */
    YOKE_PEER_DIRECT, /**< In place, by peer access. */
    YOKE_PEER_HOST    /**< By copies through host memory. */
} yoke_peer_path;

/** The connection from one device to another. */
typedef struct yoke_peer_info {
    size_t struct_size;      /**< sizeof(yoke_peer_info). */
    yoke_peer_path path;     /**< The way copies take. */
    double bytes_per_second; /**< The rate of large copies, which this call measures. */
    double latency_seconds;  /**< How long a copy of 64 bytes takes, likewise. */
} yoke_peer_info;

/** All zero but the size. */
#define YOKE_PEER_INFO_INIT                                                                        \
    { sizeof(yoke_peer_info), YOKE_PEER_SAME, 0, 0 }

/** Measures copies from one open device to another. The devices should be idle.
 *
 * @param devices    Open devices.
 * @param from       Index of the source.
 * @param to         Index of the destination.
 * @param[out] info  Set struct_size first.
 * @return ARGUMENT: there is no such device, or a pointer or struct_size is wrong.
 */
YOKE_API yoke_status yoke_devices_peer(const yoke_devices *devices, int from, int to,
                                       yoke_peer_info *info);

/** One backend: whether it works in this build on this machine, and why. Texts are static. */
typedef struct yoke_backend_info {
    size_t struct_size; /**< sizeof(yoke_backend_info). */
    const char *name;   /**< "cpu" or "cuda". */
    bool available;     /**< Devices of this kind can be opened now. */
    const char *detail; /**< Library and version, or the reason why not. */
} yoke_backend_info;

/** All zero but the size. */
#define YOKE_BACKEND_INFO_INIT                                                                     \
    { sizeof(yoke_backend_info), NULL, false, NULL }

/** Describes one backend, as `yoke devices` prints it.
 *
 * @param index      Counted from 0.
 * @param[out] info  Set struct_size first.
 * @return false past the last backend.
 */
YOKE_API bool yoke_backend_describe(int index, yoke_backend_info *info);

#ifdef __cplusplus
}
#endif

#endif
