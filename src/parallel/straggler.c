/* SPDX-License-Identifier: Apache-2.0 */
/* Slows one lane down by sleeping on the clock: its core stays free, as if the work were done on a
 * slower device elsewhere. */
#include "parallel/straggler.h"

#include <errno.h>
#include <time.h>

#include "parallel/engine.h"

#define FACTOR_MOST 1e6

yoke_status yoke_straggler_check(const yoke_data_parallel *parallel) {
    const yoke_data_parallel_options *options = &parallel->options;
    bool ranks = options->process_group != NULL;
    int count = ranks ? parallel->ranks.world : parallel->count;
    if (options->straggler_factor == 0) return YOKE_OK;
    if (!(options->straggler_factor >= 1 && options->straggler_factor <= FACTOR_MOST))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "straggler_factor is %g: at least 1, or 0 for none; %g at most",
                    options->straggler_factor, FACTOR_MOST);
    if (options->straggler < 0 || options->straggler >= count)
        return FAIL(YOKE_ERROR_ARGUMENT, "straggler is %d: the %s are 0 to %d", options->straggler,
                    ranks ? "ranks" : "devices", count - 1);
    if (!parallel->queued) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "straggler %d is %s: only CPU devices can be slowed down, since a GPU computes "
                "while its host thread waits",
                options->straggler, yoke_device_name(yoke_devices_at(parallel->devices, 0)));
}

void yoke_straggle(const yoke_data_parallel *parallel, int lane, uint64_t begin_ns) {
    const yoke_data_parallel_options *options = &parallel->options;
    int own = options->process_group != NULL ? parallel->ranks.rank : lane;
    if (options->straggler_factor == 0 || own != options->straggler) return;
    double spent_ns = (double)(yoke_now_ns() - begin_ns);
    uint64_t until_ns = begin_ns + (uint64_t)(spent_ns * options->straggler_factor);
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}
