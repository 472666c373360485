/* SPDX-License-Identifier: Apache-2.0 */
/* What `yoke model export` does. */
#ifndef CLI_MODEL_EXPORT_H
#define CLI_MODEL_EXPORT_H

#include "cli/cli.h"

typedef struct model_export_flags {
    const char *weights, *onnx, *model; /* model NULL: the weights say it */
    yoke_shape input;                   /* 0 channels: the weights say it, or torchvision's */
    int classes;                        /* 0: likewise */
} model_export_flags;

/* Returns the exit code. */
int model_export(const model_export_flags *flags);

#endif
