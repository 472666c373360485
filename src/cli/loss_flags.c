/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "balanced", or a number for each class. */
#include "cli/loss_flags.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static bool is_balanced(const loss_flags *flags) {
    return flags->class_weights != NULL && strcmp(flags->class_weights, "balanced") == 0;
}

/* weights NULL: only counts them. 0: the text is no list of numbers. */
static int read_weights(const char *text, float *weights) {
    for (int count = 0; count < LOSS_FLAGS_WEIGHTS;) {
        char number[32];
        double value;
        size_t length = strcspn(text, ",");
        snprintf(number, sizeof number, "%.*s", (int)(length < 31 ? length : 31), text);
        if (!yoke_text_real(number, 0, 1e30, &value)) return 0;
        if (weights != NULL) weights[count] = (float)value;
        count++;
        if (text[length] == '\0') return count;
        text += length + 1;
    }
    return 0;
}

int loss_flags_check(const loss_flags *flags) {
    int64_t label;
    bool entropy = flags->loss == 0 || flags->loss == 1 + YOKE_LOSS_CROSS_ENTROPY;
    if (flags->class_weights != NULL && !is_balanced(flags) &&
        read_weights(flags->class_weights, NULL) == 0)
        return cli_usage_error("train",
                               "--class-weights: '%s' is neither balanced nor a number for each "
                               "class, as in 1,0.5,2",
                               flags->class_weights);
    if (flags->ignore_index != NULL &&
        !yoke_text_integer(flags->ignore_index, INT32_MIN, INT32_MAX, &label))
        return cli_usage_error("train", "--ignore-index: '%s' is no label, as in -100",
                               flags->ignore_index);
    if (!entropy &&
        (flags->class_weights != NULL || flags->ignore_index != NULL || flags->label_smoothing > 0))
        return cli_usage_error("train",
                               "--class-weights, --ignore-index and --label-smoothing need "
                               "--loss cross-entropy");
    if (!isnan(flags->huber_delta) && flags->loss != 1 + YOKE_LOSS_HUBER)
        return cli_usage_error("train", "--huber-delta needs --loss huber");
    return -1;
}

void loss_flags_fill(yoke_trainer_options *run, const loss_flags *flags, loss_choice *choice) {
    int64_t label;
    bool plain = flags->loss == 0 && flags->class_weights == NULL && flags->ignore_index == NULL;
    run->label_smoothing = flags->label_smoothing;
    if (plain) return;
    choice->options = (yoke_loss_options)YOKE_LOSS_OPTIONS_INIT;
    choice->options.kind =
        flags->loss > 0 ? (yoke_loss_kind)(flags->loss - 1) : YOKE_LOSS_CROSS_ENTROPY;
    choice->options.label_smoothing = flags->label_smoothing;
    run->label_smoothing = 0;
    run->loss = &choice->options;
    run->balanced_class_weights = is_balanced(flags);
    if (flags->class_weights != NULL && !run->balanced_class_weights) {
        choice->options.weight_count = read_weights(flags->class_weights, choice->weights);
        choice->options.class_weights = choice->weights;
    }
    choice->options.set_ignore_index =
        flags->ignore_index != NULL &&
        yoke_text_integer(flags->ignore_index, INT32_MIN, INT32_MAX, &label);
    if (choice->options.set_ignore_index) choice->options.ignore_index = (int)label;
    if (!isnan(flags->huber_delta)) choice->options.huber_delta = flags->huber_delta;
}
