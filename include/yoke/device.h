/* The devices of one machine. With no GPU the CPU poses as N devices: each has memory of its own,
 * a fixed share of the cores and the threads to use them. */
#ifndef YOKE_DEVICE_H
#define YOKE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yoke_precision {
    YOKE_FLOAT32,
    YOKE_BFLOAT16, /* computes in bfloat16; master weights, gradients and reduction stay float32 */
    YOKE_TF32      /* CUDA: float32 with matrix products and convolutions in TensorFloat-32 */
} yoke_precision;

/* How gradients and weights travel between GPUs; CPU devices share their memory. */
typedef enum yoke_collectives {
    YOKE_COLLECTIVES_AUTO, /* NCCL where it can be had, copies otherwise */
    YOKE_COLLECTIVES_NCCL,
    YOKE_COLLECTIVES_COPY /* peer copies and our own sums, in a fixed order; several replicas may
                             share a GPU */
} yoke_collectives;

/* How the algorithm of a layer is chosen. */
typedef enum yoke_algorithm {
    YOKE_ALGORITHM_MEASURED, /* the fastest, timed when the plan is made, one choice for all
                                replicas */
    YOKE_ALGORITHM_DIRECT    /* direct convolution by a fixed rule: the same bits in every run */
} yoke_algorithm;

typedef struct yoke_devices yoke_devices;

typedef struct yoke_devices_options {
    size_t struct_size;
    const char *list; /* "auto", "4xcpu", "cpu,cpu", "2xcuda", "4xcuda:0"; NULL means "auto": every
                         usable GPU, or one CPU device. The first listed is the root */
    int threads;      /* compute threads per device; 0: cores / devices, at least 1 */
    bool unbound;     /* do not bind workers to cores */
    /* This process is one of local_world that share the machine: it opens one device, entry
     * local_rank % entries of the list, or CPU device local_rank with its share of the cores. 0:
     * the whole list. */
    int local_rank, local_world;
} yoke_devices_options;

typedef struct yoke_device_info {
    size_t struct_size;
    char name[32];        /* "cpu:0" */
    char description[96]; /* processor or GPU model */
    int threads;          /* compute threads */
    int first_core;       /* first core the device is bound to; -1: unbound */
    int core_count;
    size_t memory_bytes; /* physical memory the device can draw on (shared by CPU devices) */
    bool bfloat16;       /* the processor computes in bfloat16 natively */
    /* GPUs only; empty or 0 otherwise. */
    char uuid[48];      /* "GPU-1c2d..." */
    char pci_id[20];    /* "0000:3b:00.0" */
    int capability;     /* compute capability, 90: 9.0 */
    size_t memory_free; /* bytes, when asked */
    bool code;          /* this build has code for it, or PTX it can be made from */
    char note[128];     /* what is odd about it and what is done about that */
} yoke_device_info;

/* Opens every device of the list, or none. ARGUMENT: the list can't be read, with the offending
 * part and the forms allowed; DEVICE: it names what this build or machine has not. */
YOKE_API yoke_status yoke_devices_open(yoke_devices **devices, const yoke_devices_options *options);
YOKE_API void yoke_devices_close(yoke_devices *devices);
YOKE_API int yoke_devices_count(const yoke_devices *devices);
YOKE_API yoke_status yoke_devices_describe(const yoke_devices *devices, int index,
                                           yoke_device_info *info);

/* How a device reads another's memory. */
typedef enum yoke_peer_path {
    YOKE_PEER_SAME,   /* its own memory, or memory they share */
    YOKE_PEER_DIRECT, /* peer access: in place */
    YOKE_PEER_HOST    /* copies that go through host memory */
} yoke_peer_path;
typedef struct yoke_peer_info {
    size_t struct_size;
    yoke_peer_path path;
    double bytes_per_second; /* of large copies, measured now */
} yoke_peer_info;
/* Copies from one open device to another. The devices should be idle. */
YOKE_API yoke_status yoke_devices_peer(const yoke_devices *devices, int from, int to,
                                       yoke_peer_info *info);

/* One row a backend: what is in this build and why; for `yoke devices`. Returns false past the end.
 * Texts are static. */
typedef struct yoke_backend_info {
    size_t struct_size;
    const char *name;   /* "cpu", "cuda" */
    bool available;     /* devices of this kind can be opened now */
    const char *detail; /* library and version, or the reason it can't */
} yoke_backend_info;
YOKE_API bool yoke_backend_describe(int index, yoke_backend_info *info);

#ifdef __cplusplus
}
#endif

#endif
