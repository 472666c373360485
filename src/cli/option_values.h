/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are more than a word or a number. Each begins with its text, NULL where the command
 * does not give it, and everything else is then 0. */
#ifndef CLI_OPTION_VALUES_H
#define CLI_OPTION_VALUES_H

#include <stdbool.h>

#include "yoke/trainer.h"

/* "4" or "auto". */
typedef struct thread_count {
    const char *text;
    int count; /* 0: auto */
} thread_count;

/* "1:2.0". */
typedef struct straggler {
    const char *text;
    int index;
    double factor; /* 0: none */
} straggler;

/* "0.4,0.4,0.4,0.1"; numbers that the text leaves out are 0. */
typedef struct color_jitter {
    const char *text;
    yoke_color_jitter strengths;
} color_jitter;

/* "10m", "500steps". */
typedef struct save_interval {
    const char *text;
    double amount;
    yoke_checkpoint_unit unit;
} save_interval;

/* "balanced", or a number for each class. */
#define CLASS_WEIGHTS_MAX 4096
typedef struct class_weights {
    const char *text;
    bool balanced;
    int count;
    float weights[CLASS_WEIGHTS_MAX];
} class_weights;

/* "auto", or a number for each device: "2:1:1". */
#define DEVICE_SHARES_MAX 64
typedef struct device_shares {
    const char *text;
    bool measured;
    int count;
    double shares[DEVICE_SHARES_MAX];
} device_shares;

/* A text, given as often as there are texts. */
#define TEXT_LIST_MAX 256
typedef struct text_list {
    const char *text; /* the last one */
    int count;
    const char *all[TEXT_LIST_MAX];
} text_list;

/* "-100". */
typedef struct ignored_label {
    const char *text;
    int number;
} ignored_label;

/* "1024", "dynamic". */
typedef struct loss_scale {
    const char *text;
    double value; /* as yoke_data_parallel_options.loss_scale */
} loss_scale;

/* Reads the text of such a value, a cli_kind, into the rest of it. -1, or the exit code of a usage
 * error. */
int option_value_read(unsigned kind, const char *verb, void *value);

#endif
