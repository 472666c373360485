/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "0.4,0.4,0.4,0.1". */
#include "cli/augment_flags.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* Numbers that the text leaves out are 0. */
static bool read_jitter(yoke_color_jitter *jitter, const char *text) {
    double *const strengths[] = {&jitter->brightness, &jitter->contrast, &jitter->saturation,
                                 &jitter->hue};
    *jitter = (yoke_color_jitter){0};
    for (int i = 0; i < 4; i++) {
        char number[32];
        size_t length = strcspn(text, ",");
        snprintf(number, sizeof number, "%.*s", (int)length, text);
        if (!yoke_text_real(number, 0, i < 3 ? 10 : 0.5, strengths[i])) return false;
        if (text[length] == '\0') return true;
        text += length + 1;
    }
    return false;
}

int augment_flags_check(const augment_flags *flags) {
    yoke_color_jitter unused;
    if (flags->color_jitter == NULL || read_jitter(&unused, flags->color_jitter)) return -1;
    return cli_usage_error("train",
                           "--color-jitter: '%s' is not BRIGHTNESS[,CONTRAST[,SATURATION[,HUE]]], "
                           "from 0 to 10 each and hue to 0.5, as in 0.4,0.4,0.4,0.1",
                           flags->color_jitter);
}

void augment_flags_fill(yoke_trainer_options *run, const augment_flags *flags) {
    run->augment = (yoke_augment)flags->augment;
    if (flags->color_jitter != NULL) read_jitter(&run->color_jitter, flags->color_jitter);
    run->erasing = flags->random_erasing;
    run->mixup = flags->mixup;
}
