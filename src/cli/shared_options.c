/* SPDX-License-Identifier: Apache-2.0 */
/* SGD here has momentum and weight decay, unlike the library's default. */
#include "cli/shared_options.h"

#include <string.h>

#define HELP_WIDTH 100

void cli_print_models(FILE *out) {
    int column = fprintf(out, "\nmodels:");
    for (int i = 0; yoke_model_preset_name(i) != NULL; i++) {
        const char *name = yoke_model_preset_name(i);
        const char *comma = yoke_model_preset_name(i + 1) != NULL ? "," : "";
        if (column + (int)strlen(name) + 2 > HELP_WIDTH) column = fprintf(out, "\n       ");
        column += fprintf(out, " %s%s", name, comma);
    }
    fprintf(out, "\nOptions follow a colon: mlp:width=256,dropout=0.5\n");
}

bool cli_has_momentum(yoke_optimizer_kind kind) {
    return kind == YOKE_SGD || kind == YOKE_RMSPROP || kind == YOKE_MUON ||
           kind == YOKE_MUON_FILTERS;
}

yoke_optimizer_options cli_optimizer(yoke_optimizer_kind kind, double learning_rate) {
    static const yoke_optimizer_options defaults[] = {
        [YOKE_SGD] = {.struct_size = sizeof *defaults,
                      .learning_rate = 0.05,
                      .momentum = 0.9,
                      .weight_decay = 5e-4},
        [YOKE_ADAMW] = YOKE_ADAMW_OPTIONS_INIT,
        [YOKE_ADAM] = YOKE_ADAM_OPTIONS_INIT,
        [YOKE_RMSPROP] = YOKE_RMSPROP_OPTIONS_INIT,
        [YOKE_LION] = YOKE_LION_OPTIONS_INIT,
        [YOKE_ADAGRAD] = YOKE_ADAGRAD_OPTIONS_INIT,
        [YOKE_LAMB] = YOKE_LAMB_OPTIONS_INIT,
        [YOKE_MUON] = YOKE_MUON_OPTIONS_INIT,
        [YOKE_MUON_FILTERS] = YOKE_MUON_FILTERS_OPTIONS_INIT,
    };
    yoke_optimizer_options optimizer = defaults[kind];
    if (!isnan(learning_rate)) optimizer.learning_rate = learning_rate;
    return optimizer;
}
