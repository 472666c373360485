/* SPDX-License-Identifier: Apache-2.0 */
/* How devices of a kind predict, for this room's files only. */
#ifndef SERVE_SERVICE_H
#define SERVE_SERVICE_H

#include "serve/predictors.h"
#include "serve/slots.h"

/* Values of all tensors of the model on the host, or the rows of a call. */
typedef struct yoke_predicted_rows {
    const float *const *inputs;
    float *const *outputs;
    void *stream; /* of the host program; NULL: none */
    size_t first;
    int rows;
} yoke_predicted_rows;

typedef struct yoke_service yoke_service;

typedef struct yoke_service_calls {
    yoke_status (*create)(yoke_service **service, const yoke_predictors_options *options);
    void (*destroy)(yoke_service *service); /* takes NULL */
    yoke_status (*publish)(yoke_service *service, yoke_tensor_reader read, void *context);
    /* By the thread that has the slot: begin, a run for each part of the rows, end unless begin
     * failed. */
    yoke_status (*begin)(yoke_service *service, int slot);
    yoke_status (*run)(yoke_service *service, int slot, const yoke_predicted_rows *rows);
    void (*end)(yoke_service *service, int slot);
    void (*describe)(yoke_service *service, yoke_predictors_report *report);
} yoke_service_calls;

struct yoke_service {
    const yoke_service_calls *calls;
    yoke_slots slots;
};

extern const yoke_service_calls yoke_service_of_shared_memory, yoke_service_of_engine;

#endif
