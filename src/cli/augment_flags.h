/* SPDX-License-Identifier: Apache-2.0 */
/* --augment and its neighbours. */
#ifndef CLI_AUGMENT_FLAGS_H
#define CLI_AUGMENT_FLAGS_H

#include "cli/arguments.h"
#include "yoke/trainer.h"

typedef struct augment_flags {
    int augment;
    const char *color_jitter; /* NULL: not given */
    double random_erasing, mixup;
} augment_flags;

/* Where the verb's struct has its augment_flags. */
#define CLI_OPTIONS_AUGMENT(at)                                                                    \
    {"augment",                                                                                    \
     "none|crop-flip|crop-flip-cutout|resized-crop-flip",                                          \
     "change training images at random (none)",                                                    \
     CLI_CHOICE,                                                                                   \
     (at) + offsetof(augment_flags, augment),                                                      \
     0,                                                                                            \
     0},                                                                                           \
        {"color-jitter",                                                                           \
         "B[,C[,S[,H]]]",                                                                          \
         "change brightness, contrast, saturation and hue of training images: 0.4,0.4,0.4,0.1",    \
         CLI_TEXT,                                                                                 \
         (at) + offsetof(augment_flags, color_jitter),                                             \
         0,                                                                                        \
         0},                                                                                       \
        {"random-erasing",                                                                         \
         "P",                                                                                      \
         "probability to cover a box of a training image (0)",                                     \
         CLI_REAL,                                                                                 \
         (at) + offsetof(augment_flags, random_erasing),                                           \
         0,                                                                                        \
         1},                                                                                       \
    {                                                                                              \
        "mixup", "ALPHA",                                                                          \
            "mix each training row with the row before it, by a share from Beta(ALPHA, ALPHA) "    \
            "(0)",                                                                                 \
            CLI_REAL, (at) + offsetof(augment_flags, mixup), 0, 1000                               \
    }

/* -1, or the exit code of a usage error. */
int augment_flags_check(const augment_flags *flags);
/* Checked flags. */
void augment_flags_fill(yoke_trainer_options *run, const augment_flags *flags);

#endif
