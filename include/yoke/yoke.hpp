/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The C++ header: objects that close themselves, arrays of any container, and errors as exceptions
 * or as results (result.hpp), over the C API. C++17 or later; header only, so it needs nothing but
 * the C library. docs/cpp.md is its guide.
 *
 *     yoke::model model("mlp", yoke::vector_shape(784));
 *     model.finish(model.input().linear("fc1", 128).relu().linear("fc2", 10));
 *     yoke::net net(model);
 *     net.fit(images, labels);
 *     net.save("weights.safetensors");
 *
 * Every class is move only and empty when made by default. get() lends the object to the C API,
 * release() gives it away. Objects close in the order opposite to their declaration, which is the
 * order that the C API asks for.
 */
#ifndef YOKE_YOKE_HPP
#define YOKE_YOKE_HPP

#include "yoke/array.hpp"
#include "yoke/cancellation.hpp"
#include "yoke/data_parallel.hpp"
#include "yoke/dataset.hpp"
#include "yoke/model.hpp"
#include "yoke/net.hpp"
#include "yoke/optimizer.hpp"
#include "yoke/result.hpp"
#include "yoke/trainer.hpp"
#include "yoke/yoke.h"

#endif
