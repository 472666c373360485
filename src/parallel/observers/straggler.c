/* SPDX-License-Identifier: Apache-2.0 */
/* A straggler: one device or rank that computes more slowly than the others, on purpose, to show
 * which others wait for it. It sleeps on the clock: its core stays free, as if the work were done
 * on a slower device elsewhere. */
#include "parallel/observers/observers.h"

#include <errno.h>
#include <time.h>

#define FACTOR_MOST 1e6

yoke_status yoke_straggler_check(const yoke_step *step) {
    const yoke_data_parallel_options *options = &step->options;
    bool ranks = options->process_group != NULL;
    int count = ranks ? step->ranks.seats : step->count;
    if (options->straggler_factor == 0) return YOKE_OK;
    if (!(options->straggler_factor >= 1 && options->straggler_factor <= FACTOR_MOST))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "straggler_factor is %g: at least 1, or 0 for none; %g at most",
                    options->straggler_factor, FACTOR_MOST);
    if (options->straggler < 0 || options->straggler >= count)
        return FAIL(YOKE_ERROR_ARGUMENT, "straggler is %d: the %s are 0 to %d", options->straggler,
                    ranks ? "ranks" : "devices", count - 1);
    if (!step->queued) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "straggler %d is %s: only CPU devices can be slowed down, since a GPU computes "
                "while its host thread waits",
                options->straggler, yoke_device_name(yoke_devices_at(step->devices, 0)));
}

/* Where the computation of a straggler ends, it waits until it has taken straggler_factor times as
 * long. */
static yoke_status after_bar(yoke_step *step, int lane, yoke_open_bar *open) {
    const yoke_data_parallel_options *options = &step->options;
    yoke_stage stage = open->bar->stage;
    int own = options->process_group != NULL ? step->ranks.seat : lane;
    if (own != options->straggler) return YOKE_OK;
    if (stage != YOKE_STAGE_FORWARD && stage != YOKE_STAGE_BACKWARD) return YOKE_OK;
    uint64_t begin_ns = open->span.begin_ns;
    double spent_ns = (double)(yoke_now_ns() - begin_ns);
    uint64_t until_ns = begin_ns + (uint64_t)(spent_ns * options->straggler_factor);
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
    return YOKE_OK;
}

const yoke_observer yoke_observe_straggler = {.after_bar = after_bar};
