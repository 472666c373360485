/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a simulated step goes, in one sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/simulate.h"
#include "simulate/spread.h"

#define SMALLEST_SHARE 0.005 /* of a step, to be named */
#define TEXT_BYTES 160

/* The parts add up to the step. */
typedef struct step_part {
    double ns;
    char text[TEXT_BYTES]; /* "computes" */
} step_part;

enum { COMPUTING, STRAGGLER, PYTHON, ROOT, LINKS, PARTS };

static bool has_buckets(yoke_simulated_mode mode) {
    return mode > YOKE_SIMULATED_NCCL && mode != YOKE_SIMULATED_ASYNC;
}

static void say_links(const yoke_simulation *found, char text[TEXT_BYTES]) {
    int others = found->devices - 1;
    if (found->mode == YOKE_SIMULATED_NCCL)
        snprintf(text, TEXT_BYTES,
                 "waits for links: all weights pass a chain of %d devices before "
                 "forward, and all gradients after backward",
                 found->devices);
    else if (!has_buckets(found->mode) && others == 1)
        snprintf(text, TEXT_BYTES,
                 "waits for the root's link: all weights to the other device, "
                 "and its gradients back");
    else if (!has_buckets(found->mode))
        snprintf(text, TEXT_BYTES,
                 "waits for the root's link: all weights to %d devices and "
                 "their gradients back, one device after the other",
                 others);
    else
        snprintf(text, TEXT_BYTES,
                 "waits for links: backward hides a part of the buckets' way only");
}

static void measure(const yoke_simulation *found, const yoke_profile *profile,
                    const yoke_topology *topology, step_part parts[PARTS]) {
    double passes_ms = profile->forward_ms, step_ns = (double)found->step_ns;
    for (int s = 0; s < profile->segment_count; s++)
        passes_ms += profile->segments[s].backward_ms;
    double loss_ns = 1e6 * profile->loss_ms;
    yoke_paces paces = yoke_paces_of(topology, found->devices);
    double slowest = yoke_pace_slowest(&paces);
    parts[COMPUTING].ns = 1e6 * (profile->host_ms + passes_ms) + loss_ns + (double)found->update_ns;
    parts[STRAGGLER].ns = 1e6 * passes_ms * (slowest - 1);
    parts[PYTHON].ns = (double)found->python_ns;
    parts[ROOT].ns = (double)found->loss_ns - loss_ns;
    parts[LINKS].ns = step_ns;
    for (int i = 0; i < LINKS; i++)
        parts[LINKS].ns -= parts[i].ns;
    snprintf(parts[COMPUTING].text, TEXT_BYTES, "computes");
    if (paces.straggler_factor >= slowest)
        snprintf(parts[STRAGGLER].text, TEXT_BYTES, "waits for device %d, which is slow",
                 paces.straggler);
    else
        snprintf(parts[STRAGGLER].text, TEXT_BYTES, "waits for the slowest device");
    snprintf(parts[PYTHON].text, TEXT_BYTES,
             "is Python's: it copies modules, starts threads and holds a lock for each layer");
    snprintf(parts[ROOT].text, TEXT_BYTES, "is the root's alone: the loss of all rows");
    say_links(found, parts[LINKS].text);
}

/* Nobody waits for all, so there is no step whose parts add up: the devices' time does. */
static void describe_async(const yoke_simulation *found, char text[YOKE_SIMULATION_TEXT_BYTES]) {
    double ns[YOKE_ACTIVITIES] = {0};
    int shown = found->devices < YOKE_SIMULATED_LANES ? found->devices : YOKE_SIMULATED_LANES;
    for (int i = 0; i < found->span_count; i++) {
        const yoke_span_info *span = &found->spans[i];
        if (span->lane < shown)
            ns[yoke_activity_of((int)span->stage)] += (double)(span->end_ns - span->begin_ns);
    }
    double percent = 100 / ((double)found->step_ns * shown);
    snprintf(text, YOKE_SIMULATION_TEXT_BYTES,
             "%.0f %% of the devices' time computes; %.0f %% is for weights and gradients on their "
             "way; %.0f %% waits for the root's link and its updates",
             percent * ns[YOKE_COMPUTES], percent * ns[YOKE_COMMUNICATES],
             percent * ns[YOKE_WAITS]);
}

static int larger_first(const void *a, const void *b) {
    const step_part *x = a, *y = b;
    return (x->ns < y->ns) - (x->ns > y->ns);
}

const char *yoke_simulation_describe(const yoke_simulation *found, const yoke_profile *profile,
                                     const yoke_topology *topology,
                                     char text[YOKE_SIMULATION_TEXT_BYTES]) {
    step_part parts[PARTS];
    size_t length = 0, size = YOKE_SIMULATION_TEXT_BYTES;
    if (found->mode == YOKE_SIMULATED_ASYNC && found->devices > 1) {
        describe_async(found, text);
        return text;
    }
    measure(found, profile, topology, parts);
    bool hidden = found->devices > 1 && has_buckets(found->mode) &&
                  parts[LINKS].ns < SMALLEST_SHARE * (double)found->step_ns;
    qsort(parts, PARTS, sizeof *parts, larger_first);
    text[0] = '\0';
    for (int i = 0; i < PARTS; i++) {
        double share = parts[i].ns / (double)found->step_ns;
        if (share < SMALLEST_SHARE || length >= size) continue;
        length +=
            (size_t)snprintf(text + length, size - length, "%s%.0f %% %s%s", length > 0 ? "; " : "",
                             100 * share, length > 0 ? "" : "of the step ", parts[i].text);
    }
    if (hidden && length < size)
        snprintf(text + length, size - length, "; all transfers hide behind backward");
    return text;
}
