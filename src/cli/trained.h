/* SPDX-License-Identifier: Apache-2.0 */
/* What evaluate and predict share: a file of weights becomes an engine that only predicts. */
#ifndef CLI_TRAINED_H
#define CLI_TRAINED_H

#include "cli/algorithm_cache.h"
#include "cli/cli.h"
#include "cli/dataset_rows.h"

typedef struct trained_flags {
    const char *weights, *model, *devices; /* model NULL: the file says it */
    int threads, batch;
    yoke_precision precision;
    dataset_rows rows; /* of a SPEC */
    algorithm_cache_flags algorithm_cache;
} trained_flags;

/* The rows of these flags in a verb's table. */
#define TRAINED_OPTION_WEIGHTS(at)                                                                 \
    { "weights", "FILE", "safetensors file of the weights (required)", at }
#define TRAINED_OPTION_MODEL(at)                                                                   \
    { "model", "NAME", "of weights that do not name their model, as PyTorch's", at }
#define TRAINED_OPTION_DEVICES(at)                                                                 \
    { "devices", "LIST", "auto, cpu, 4xcpu, ...; all share each batch (auto)", at }

typedef struct trained {
    yoke_weights_description *description;
    yoke_weights_info info; /* what the file says, and what the tool takes where it says nothing */
    bool described;         /* the file says model and input, and the user names no other model */
    yoke_devices *devices;
    yoke_model *model;
    yoke_data_parallel *parallel;
} trained;

/* Reads the description, compares the file with the model that it names, and opens the devices.
 * Takes a zeroed struct; close it in any case. */
yoke_status trained_open(trained *made, const trained_flags *flags);
/* Opens the test split of SPEC as `rows` says, with the sizes and the normalization of the
 * weights. Of weights that say nothing the dataset decides the input and the classes. */
yoke_status trained_dataset(trained *made, const char *spec, const dataset_rows *rows,
                            yoke_dataset **dataset);
/* Weights that say nothing have input and normalization as torchvision's models have them, and as
 * many classes as the last tensor has elements. */
yoke_status trained_guess(trained *made, const trained_flags *flags);
/* The model for `batch` rows, before they take memory. DATA: the file does not fit it. MEMORY: such
 * rows take more than half of the machine's. */
yoke_status trained_model(trained *made, const trained_flags *flags, int batch);
/* The engine of that model, the weights. A warning of the cache goes to stderr. */
yoke_status trained_build(trained *made, const trained_flags *flags, int batch, bool pixels);
void trained_close(trained *made);

/* Whether a name in a file of weights is this one of a dataset. The file has U+FFFD for each byte
 * of a name that is not UTF-8. */
bool trained_is_name(const char *own, const char *name);

/* The name of a class, or its number in `text`. */
const char *trained_class(const trained *made, int index, char text[16]);

#endif
