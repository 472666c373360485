/* SPDX-License-Identifier: Apache-2.0 */
/* The channels that a model's first convolution reads: those of the images, or 4 or 8, the last
 * ones zero, which the library's kernels may want. */
#ifndef DEVICE_CUDA_STEM_H
#define DEVICE_CUDA_STEM_H

#include "device/cuda/cuda.h"

/* Plans the convolution with `padded` channels; 0: with its own. */
typedef yoke_status cuda_stem_planner(yoke_plan **plan, cuda_device *device,
                                      const yoke_plan_request *request, int padded);

/* Decides `padded`. Measures what a step pays: laying out the input, padding the filter, forward,
 * the gradient of the filter and cutting it. `key` names the convolution; request->inputs[0] is
 * plain. */
yoke_status cuda_stem_choose(cuda_device *device, const yoke_plan_request *request, const char *key,
                             cuda_stem_planner *planner, int *padded);

#endif
