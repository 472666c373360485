/* SPDX-License-Identifier: Apache-2.0 */
/* A model whose operations of the host program run under guard: what a callback writes goes to
 * memory of its own first. */
#ifndef MODEL_HOST_GUARD_H
#define MODEL_HOST_GUARD_H

#include "model/graph.h"

typedef struct yoke_guarded_model {
    yoke_model model; /* a copy that borrows all but the nodes; for replicas on CPU devices */
    yoke_host_operation *originals; /* [nodes] */
} yoke_guarded_model;

/* Then a callback's call fails with ARGUMENT where it wrote outside of what it was given, or left
 * an element unwritten. The model must outlive the copy. Release takes a zeroed one. */
yoke_status yoke_guarded_model_build(yoke_guarded_model *guarded, const yoke_model *model);
void yoke_guarded_model_release(yoke_guarded_model *guarded);

#endif
