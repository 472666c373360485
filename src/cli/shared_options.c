/* SGD here has momentum and weight decay, unlike the library's default. */
#include "cli/shared_options.h"

yoke_optimizer_options cli_optimizer(yoke_optimizer_kind kind, double learning_rate) {
    yoke_optimizer_options sgd = YOKE_SGD_OPTIONS_INIT, adamw = YOKE_ADAMW_OPTIONS_INIT;
    sgd.learning_rate = 0.05;
    sgd.momentum = 0.9;
    sgd.weight_decay = 5e-4;
    yoke_optimizer_options optimizer = kind == YOKE_SGD ? sgd : adamw;
    if (!isnan(learning_rate)) optimizer.learning_rate = learning_rate;
    return optimizer;
}
