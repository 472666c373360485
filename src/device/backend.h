/* The backend table: what a folder under device/ must offer. device.c alone names a backend.
 * Every entry is required unless it says it may be NULL, and only queues work on the device; the
 * CPU finishes early, which is allowed. */
#ifndef DEVICE_BACKEND_H
#define DEVICE_BACKEND_H

#include "device/device.h"

typedef struct yoke_backend yoke_backend;

/* First member of every backend's device. */
struct yoke_device {
    const yoke_backend *backend;
    int index; /* position in the list: 0 is the root */
    char name[32];
    int threads;
    struct yoke_allocation *allocations; /* kept by device.c, as is their sum */
    size_t allocated;
};

/* First member of every plan. A plan is made by the backend's `plan` entry, which picks the
 * functions for the operation's kind. */
struct yoke_plan {
    yoke_device *device;
    yoke_plan_needs needs;
    yoke_status (*bind)(yoke_plan *plan, const yoke_plan_binding *binding);
    yoke_status (*forward)(yoke_plan *plan, const yoke_plan_step *step);
    yoke_status (*backward)(yoke_plan *plan, const yoke_plan_step *step); /* NULL: inference only */
    void (*destroy)(yoke_plan *plan); /* takes half-built plans */
};

typedef struct yoke_backend_open {
    int index, count; /* of this device among all in the list */
    int ordinal;      /* among this backend's devices: "cpu:0", "cpu:1" */
    int threads;      /* wanted; 0: share the cores */
    bool unbound;
} yoke_backend_open;

struct yoke_backend {
    const char *name;

    /* life */
    yoke_status (*open)(yoke_device **device, const yoke_backend_open *request);
    void (*close)(yoke_device *device);
    void (*describe)(const yoke_device *device, yoke_device_info *info);
    bool (*supports)(const yoke_device *device, yoke_precision precision);
    yoke_status (*enter)(yoke_device *device, bool bind, yoke_device_scope *scope);
    void (*leave)(yoke_device *device, const yoke_device_scope *scope);

    /* memory */
    void *(*allocate)(yoke_device *device, size_t bytes); /* NULL: out of memory */
    void (*release)(yoke_device *device, void *pointer);
    yoke_status (*upload)(yoke_device *device, void *to, const void *from, size_t bytes);
    yoke_status (*download)(yoke_device *device, void *to, const void *from, size_t bytes);
    yoke_status (*copy)(yoke_device *to_device, void *to, yoke_device *from_device,
                        const void *from, size_t bytes);

    /* order */
    yoke_status (*synchronize)(yoke_device *device);

    /* flat arithmetic */
    yoke_status (*sum)(yoke_device *device, float *to, const float *const *from, int count,
                       size_t elements);
    yoke_status (*square_sum)(yoke_device *device, const float *values, size_t elements,
                              double *sum);
    yoke_status (*sgd)(yoke_device *device, const yoke_sgd_step *step, float *weights,
                       const float *gradients, float *velocity, size_t elements);
    yoke_status (*adamw)(yoke_device *device, const yoke_adamw_step *step, float *weights,
                         const float *gradients, float *moment1, float *moment2, size_t elements);
    yoke_status (*accumulate)(yoke_device *device, const yoke_layout *layout, void *to,
                              const void *from);

    /* layouts and plans */
    yoke_status (*layout_plain)(yoke_device *device, const int64_t *shape, int rank,
                                yoke_layout *layout);
    yoke_status (*layout_convert)(yoke_device *device, const yoke_layout *to_layout, void *to,
                                  const yoke_layout *from_layout, const void *from);
    yoke_status (*plan)(yoke_plan **plan, yoke_device *device, const yoke_plan_request *request);
};

/* The table of each backend in this build. */
const yoke_backend *yoke_cpu_backend(void);
bool yoke_cpu_describe(yoke_backend_info *info);

#endif
