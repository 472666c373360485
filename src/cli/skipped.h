/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that --init left out, for the result. */
#ifndef CLI_SKIPPED_H
#define CLI_SKIPPED_H

#include "base/base.h"
#include "yoke/yoke.h"

typedef struct skipped_tensor {
    yoke_skip_reason reason;
    char *name;
} skipped_tensor;

typedef struct skipped_list {
    skipped_tensor *tensors;
    int count;
    bool incomplete; /* out of memory */
} skipped_list;

void skipped_add(skipped_list *list, const yoke_weights_skip *skip);
void skipped_free(skipped_list *list);
/* Two lists of names: "init_missing" and "init_unknown". */
void skipped_json(yoke_json *json, const skipped_list *list);

#endif
