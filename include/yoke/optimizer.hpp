/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Optimizers in C++: the C API's options with PyTorch's defaults. Change any other field of what
 * these return.
 */
#ifndef YOKE_OPTIMIZER_HPP
#define YOKE_OPTIMIZER_HPP

#include "yoke/optimizer.h"
#include "yoke/result.hpp"

namespace yoke {
inline namespace YOKE_INLINE_NAMESPACE {

using optimizer_options = yoke_optimizer_options;

/** torch.optim.SGD. */
inline optimizer_options sgd(double learning_rate = 0.1, double momentum = 0,
                             double weight_decay = 0) {
    optimizer_options options = YOKE_SGD_OPTIONS_INIT;
    options.learning_rate = learning_rate;
    options.momentum = momentum;
    options.weight_decay = weight_decay;
    return options;
}

/** torch.optim.Adam. */
inline optimizer_options adam(double learning_rate = 1e-3, double weight_decay = 0) {
    optimizer_options options = YOKE_ADAM_OPTIONS_INIT;
    options.learning_rate = learning_rate;
    options.weight_decay = weight_decay;
    return options;
}

/** torch.optim.AdamW. */
inline optimizer_options adamw(double learning_rate = 1e-3, double weight_decay = 0.01) {
    optimizer_options options = YOKE_ADAMW_OPTIONS_INIT;
    options.learning_rate = learning_rate;
    options.weight_decay = weight_decay;
    return options;
}

/** torch.optim.RMSprop. */
inline optimizer_options rmsprop(double learning_rate = 1e-2, double momentum = 0) {
    optimizer_options options = YOKE_RMSPROP_OPTIONS_INIT;
    options.learning_rate = learning_rate;
    options.momentum = momentum;
    return options;
}

/** torch.optim.Muon. */
inline optimizer_options muon(double learning_rate = 1e-3, double weight_decay = 0.1) {
    optimizer_options options = YOKE_MUON_OPTIONS_INIT;
    options.learning_rate = learning_rate;
    options.weight_decay = weight_decay;
    return options;
}

} // namespace YOKE_INLINE_NAMESPACE
} // namespace yoke

#endif
