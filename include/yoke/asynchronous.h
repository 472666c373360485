/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Modes beside data parallelism in which devices do not wait for each other in every step: each has
 * weights of its own for a while. For CPU devices.
 */
#ifndef YOKE_ASYNCHRONOUS_H
#define YOKE_ASYNCHRONOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** YOKE_MODE_ASYNC, asynchronous SGD with a server (Dean et al. 2012). Each device computes the
 * gradient of a batch with the weights that it pulled from the server, and pushes it; the server
 * updates at once, and the device pulls again. A step is a push, of `batch` rows. The staleness of
 * a push is the number of updates since its pull. */
typedef struct yoke_async_options {
    size_t struct_size;       /**< sizeof(yoke_async_options). */
    int max_staleness;        /**< No push is staler: devices that are ahead wait (Ho et al. 2013).
                                   At least devices - 1; 0: no bound. */
    bool divide_rate;         /**< Divide the learning rate by the staleness, where that is above 1
                                   (Zhang et al. 2016). */
    double compensation;      /**< DC-ASGD's lambda (Zheng et al. 2017): the gradient g, of weights
                                   that were w then and are v now, becomes
                                   g + lambda g g (v - w); 0: as it is. */
    const char *record_order; /**< A file that gets the order of the pushes; NULL: none. */
    const char *replay_order; /**< Take the pushes in the order of this file, by a run of the same
                                   options: the weights end the same, bit for bit. NULL: as they
                                   come. */
} yoke_async_options;

/** The defaults: no bound, no correction. */
#define YOKE_ASYNC_OPTIONS_INIT                                                                    \
    { sizeof(yoke_async_options), 0, false, 0, NULL, NULL }

/** YOKE_MODE_LOCAL, local SGD (Stich 2019): each device takes `every` steps alone, on its rows of
 * each batch and with an optimizer of its own; then all get the mean of their weights. Before an
 * evaluation and at the end they do so, too. */
typedef struct yoke_local_options {
    size_t struct_size; /**< sizeof(yoke_local_options). */
    int every;          /**< Steps from one mean to the next; 0: 1. */
    uint64_t from;      /**< Until this step the mean follows every step: post-local SGD (Lin et al.
                             2020). */
    double outer_rate;  /**< The mean is a step of an outer optimizer with this rate, as in DiLoCo
                             (Douillard et al. 2023); 0: 1, which takes the mean itself. */
    double outer_momentum; /**< Its Nesterov momentum; 0: none. */
} yoke_local_options;

/** The defaults: a mean after every step. */
#define YOKE_LOCAL_OPTIONS_INIT                                                                    \
    { sizeof(yoke_local_options), 0, 0, 0, 0 }

/** Staleness from here on is counted together. */
#define YOKE_STALENESS_LIMIT 64

#endif
