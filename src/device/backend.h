/* SPDX-License-Identifier: Apache-2.0 */
/* The backend table: what a folder under device/ must implement. Only device.c names a backend.
 * Every entry is required unless its comment says that it may be NULL. An entry may only queue
 * its work on the device; the CPU finishes it at once. device.h explains the functions that call
 * them. */
#ifndef DEVICE_BACKEND_H
#define DEVICE_BACKEND_H

#include <pthread.h>
#include <sched.h>

#include "device/collectives.h"

typedef struct yoke_backend yoke_backend;

/* Lists of cores, as the system writes them below /sys: core_list.c. */
/* Reads "0-3,8\n". False: it is no list of cores. */
bool yoke_core_list_parse(const char *text, cpu_set_t *cores);
/* Writes "0-3,8", cut with "..." where it does not fit. */
void yoke_core_list_write(const cpu_set_t *cores, char *text, size_t size);
/* Reads the file at `path`. False: there is none, or it holds no list. */
bool yoke_core_list_read(const char *path, cpu_set_t *cores);
/* Reads "0-3,8" of the host program. ARGUMENT: an item is malformed, or not of `allowed`. */
yoke_status yoke_core_list_choose(const char *list, const cpu_set_t *allowed, cpu_set_t *cores);
/* Reads one number, and moves `at` behind it. */
bool yoke_core_list_number(const char **at, long *number);

/* First member of every backend's device. */
struct yoke_device {
    const yoke_backend *backend;
    int index;  /* position in the list: 0 is the root */
    int number; /* its position when the list was opened, which it keeps when others leave */
    char name[32];
    int threads;
    int node;                            /* of memory; YOKE_NO_NODE: of several, or unbound */
    unsigned variants;                   /* device/variants.h */
    bool recording;                      /* between yoke_recording_begin and yoke_recording_end */
    struct yoke_allocation *allocations; /* device_memory.c keeps the list and its sum */
    size_t allocated;
    struct yoke_pinned *pinned; /* device_memory.c's, too; loaders allocate from their threads */
    pthread_mutex_t pinned_turn;
};

/* First member of every plan. The backend's `plan` entry makes a plan and chooses its functions by
 * the operation's kind. */
struct yoke_plan {
    yoke_device *device;
    yoke_operation operation; /* its name and weights are the caller's, gone after planning */
    size_t rows;
    bool frozen;
    yoke_plan_needs needs;
    yoke_plan_binding binding;                                              /* the latest */
    yoke_status (*bind)(yoke_plan *plan, const yoke_plan_binding *binding); /* NULL: keeps it */
    yoke_status (*forward)(yoke_plan *plan, const yoke_plan_step *step);
    yoke_status (*backward)(yoke_plan *plan, const yoke_plan_step *step); /* NULL: inference only */
    void (*destroy)(yoke_plan *plan);        /* accepts half-built plans */
    const char *algorithms[YOKE_DIRECTIONS]; /* static texts */
    /* Only convolution and linear have parts. */
    yoke_status (*backward_part)(yoke_plan *plan, yoke_direction direction);
    yoke_factors *factors; /* NULL: none */
    /* NULL where needs.packed_bytes is 0. */
    yoke_status (*pack)(const yoke_plan *plan, const yoke_plan_binding *from, void *packed);
};

/* Calls the host program's forward or backward of a HOST. `at` holds plain float32 values; stream:
 * where the device has one. An error names the operation and the pass. */
yoke_status yoke_plan_call_host(const yoke_plan *plan, const yoke_plan_binding *at, bool backward,
                                void *stream);
/* Its parameters are plain. */
yoke_status yoke_plan_host_parameters(yoke_plan *plan);

/* What an operation's plan needs, as yoke_plan_needs says it. Backward's needs count only where
 * backward runs: where the inputs need gradients, or the operation has parameters. */
enum {
    YOKE_FORWARD_IN_PLACE = 1,
    YOKE_BACKWARD_IN_PLACE = 2,
    YOKE_IN_PLACE = YOKE_FORWARD_IN_PLACE | YOKE_BACKWARD_IN_PLACE,
    YOKE_READS_INPUT = 4,
    YOKE_READS_SECOND = 8,
    YOKE_READS_OUTPUT = 16,
    YOKE_HAS_PARAMETERS = 32,
    YOKE_READS_INPUTS = 64 /* all of them */
};

/* What a kind of plan can do; backward is dropped where the request does not train. */
typedef struct yoke_plan_calls {
    yoke_status (*bind)(yoke_plan *plan, const yoke_plan_binding *binding);
    yoke_status (*forward)(yoke_plan *plan, const yoke_plan_step *step);
    yoke_status (*backward)(yoke_plan *plan, const yoke_plan_step *step);
    void (*destroy)(yoke_plan *plan); /* NULL: the plan owns nothing but itself */
    unsigned flags;
    yoke_status (*backward_part)(yoke_plan *plan, yoke_direction direction); /* NULL: no parts */
    yoke_status (*pack)(const yoke_plan *plan, const yoke_plan_binding *from, void *packed);
} yoke_plan_calls;
/* A plan of `bytes`, zero behind its base. yoke_plan_create destroys it if planning fails later. */
yoke_status yoke_plan_allocate(yoke_plan **plan, size_t bytes, yoke_device *device,
                               const yoke_plan_request *request, const yoke_plan_calls *calls);

typedef struct yoke_backend_open {
    int index, count; /* this device's position among all of the list */
    int ordinal;      /* among this backend's devices: "cpu:0", "cpu:1" */
    const char *name; /* "cpu:0", or "cpu:0#1" where the list repeats a device */
    int threads;      /* 0: the devices share the cores equally */
    bool unbound;
    const cpu_set_t *cores; /* that its threads must not leave; NULL: there is no such set */
} yoke_backend_open;

struct yoke_device_event {
    yoke_device *device;
};

struct yoke_recording {
    yoke_device *device;
};

struct yoke_backend {
    const char *name;
    /* Calls finish before they return, and every worker may access every device's memory. The
     * order, recording, gate, undo, image and collective entries may then be NULL; host memory is
     * device memory. */
    bool shares_memory;
    bool continues;   /* plans the CONTINUED operations */
    const char *note; /* what its open changes in the process; NULL: nothing */

    /* life */
    yoke_status (*open)(yoke_device **device, const yoke_backend_open *request);
    void (*close)(yoke_device *device);
    void (*describe)(const yoke_device *device, yoke_device_info *info);
    bool (*supports)(const yoke_device *device, yoke_precision precision);
    yoke_status (*enter)(yoke_device *device, bool bind, yoke_device_scope *scope);
    void (*leave)(yoke_device *device, const yoke_device_scope *scope);
    yoke_status (*start_team)(yoke_device *device); /* NULL: no compute threads */
    void (*end_team)(yoke_device *device);          /* NULL: no compute threads */
    void (*hold_signals)(yoke_device *device);      /* NULL: signals disturb no work */
    void (*release_signals)(yoke_device *device);   /* NULL: likewise */
    yoke_status (*use)(yoke_device *device);        /* after step_out, or work on other devices */
    void (*step_out)(yoke_device *device, const yoke_device_scope *scope);
    /* Runs once all devices of a list are open: enables peer access and tests it. NULL: nothing to
     * do. */
    yoke_status (*connect)(yoke_device *const *devices, int count);

    /* memory */
    yoke_status (*allocate)(yoke_device *device, size_t bytes, void **memory);
    void (*release)(yoke_device *device, void *pointer);
    /* Memory that collectives reach without copies of their own. NULL, or *memory NULL with OK:
     * they read ordinary memory. */
    yoke_status (*allocate_collective)(yoke_device *device, size_t bytes, void **memory);
    void (*release_collective)(yoke_device *device, void *pointer);
    /* NULL: ordinary memory */
    yoke_status (*allocate_host)(yoke_device *device, size_t bytes, void **memory);
    void (*release_host)(yoke_device *device, void *pointer);
    yoke_status (*upload)(yoke_device *device, yoke_stream stream, void *to, const void *from,
                          size_t bytes);
    yoke_status (*download)(yoke_device *device, yoke_stream stream, void *to, const void *from,
                            size_t bytes);
    yoke_status (*copy)(yoke_device *to_device, yoke_stream stream, void *to,
                        yoke_device *from_device, const void *from, size_t bytes);
    yoke_status (*clear)(yoke_device *device, yoke_stream stream, void *to, size_t bytes);
    /* NULL where memory is shared. memory: what a pointer is; ARGUMENT: memory of another GPU */
    yoke_status (*memory)(yoke_device *device, const void *pointer, yoke_memory *memory);
    yoke_status (*queue_upload)(yoke_device *device, yoke_stream stream, void *to, const void *from,
                                size_t bytes);
    yoke_status (*finish_uploads)(yoke_device *device, yoke_stream stream);
    yoke_peer_path (*path)(const yoke_device *device, const yoke_device *other);

    /* order */
    yoke_status (*synchronize)(yoke_device *device);
    yoke_status (*event_create)(yoke_device_event **event, yoke_device *device, bool timed);
    yoke_status (*event_elapsed)(yoke_device_event *from, yoke_device_event *to,
                                 double *milliseconds);
    void (*event_destroy)(yoke_device_event *event);
    yoke_status (*event_record)(yoke_device_event *event, yoke_stream stream);
    yoke_status (*event_wait)(yoke_device_event *event, yoke_device *device, yoke_stream stream);
    yoke_status (*event_synchronize)(yoke_device_event *event);
    yoke_status (*event_record_host)(yoke_device_event *event, void *stream);
    yoke_status (*event_wait_host)(yoke_device_event *event, yoke_device *device, void *stream);
    yoke_status (*begin_step)(yoke_device *device, const yoke_plan_step *step);
    yoke_status (*record_begin)(yoke_device *device); /* NULL: this backend does not record */
    yoke_status (*record_end)(yoke_device *device, yoke_recording **recording);
    yoke_status (*record_run)(yoke_recording *recording);
    void (*record_destroy)(yoke_recording *recording);

    /* flat arithmetic */
    yoke_status (*sum)(yoke_device *device, yoke_stream stream, float *to, const float *const *from,
                       int count, size_t elements);
    yoke_status (*sum_subtrees)(yoke_device *device, yoke_stream stream, float *to,
                                const float *const *from, const int *sizes, int count,
                                size_t elements); /* NULL where memory is not shared */
    yoke_status (*square_sum)(yoke_device *device, yoke_stream stream, const float *values,
                              size_t elements, double *sum);
    yoke_status (*check_finite)(yoke_device *device, yoke_stream stream, const float *values,
                                size_t elements, size_t offset, uint64_t *first_bad);
    yoke_status (*gate)(yoke_device *device, yoke_stream stream, yoke_gate *gate,
                        const yoke_gate_request *request);
    yoke_status (*undo)(yoke_device *device, yoke_stream stream, const yoke_gate *gate,
                        float *values, const float *kept, size_t elements);
    yoke_status (*update)(yoke_device *device, yoke_stream stream, const yoke_update_step *step,
                          float *weights, const float *gradients,
                          float *const states[YOKE_UPDATE_STATES], size_t elements);
    yoke_status (*rescale)(yoke_device *device, yoke_stream stream, float *values, size_t elements,
                           const double *numerator, const double *denominator, double epsilon);
    yoke_status (*product)(yoke_device *device, yoke_stream stream, const yoke_product *product);
    yoke_status (*shadow)(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                          const float *parameters,
                          size_t elements); /* NULL: no plan reads a shadow */
    yoke_status (*accumulate)(yoke_device *device, const yoke_layout *layout, void *to,
                              const void *from);
    yoke_status (*sum_factors)(yoke_device *device, const yoke_factors *const *factors, int count,
                               size_t first, size_t elements,
                               float *to); /* NULL: no plan has any */

    /* images; image_layout: NULL where plans read plain float32 alone */
    yoke_status (*image_layout)(yoke_device *device, const yoke_plan_request *reader,
                                yoke_layout *layout);
    yoke_status (*decode)(yoke_device *device, const yoke_decode_request *request);

    /* layouts and plans */
    yoke_status (*layout_plain)(yoke_device *device, const int64_t *shape, int ndim,
                                yoke_layout *layout);
    yoke_status (*layout_convert)(yoke_device *device, const yoke_layout *to_layout, void *to,
                                  const yoke_layout *from_layout, const void *from);
    yoke_status (*plan)(yoke_plan **plan, yoke_device *device, const yoke_plan_request *request);
    yoke_status (*choose)(yoke_device *device, const yoke_contest *contest,
                          int *best); /* NULL: candidate 0 */

    /* collectives: a group by the backend's own library, NULL where there is none. For AUTO it may
     * leave *group NULL and return OK; the caller then makes a group of copies. */
    yoke_status (*group)(yoke_device_group **group, const yoke_device_group_request *request);
    /* communicators: NULL where devices of this kind cannot join ranks */
    yoke_status (*communicator_check)(void);
    yoke_status (*communicator_id)(yoke_device *device, uint8_t *id);
    yoke_status (*communicator)(yoke_communicator **communicator,
                                const yoke_communicator_request *request);
};

/* The cores that the calling thread may run on; returns how many, at least 1. Where the system does
 * not say, the set is core 0. */
int yoke_cores_allowed(cpu_set_t *cores);
/* The core at `position` of the set, in ascending order. */
size_t yoke_cores_at(const cpu_set_t *cores, int position);

/* The table of each backend in this build. */
const yoke_backend *yoke_cpu_backend(void);
bool yoke_cpu_describe(yoke_backend_info *info);
#ifdef YOKE_HAS_CUDA
const yoke_backend *yoke_cuda_backend(void);
bool yoke_cuda_describe(yoke_backend_info *info);
uint64_t yoke_cuda_usable(void); /* bit i: GPU i can be opened now */
#endif

#endif
