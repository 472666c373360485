/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/contest.h"

#include <assert.h>
#include <math.h>

#define HEATS 3
/* The first run may include work that a process does once: oneDNN generates the kernels of its
 * products in 22 ms. So a first run drops nobody but who is slower by this factor and these
 * milliseconds. */
#define HOPELESS 3.0
#define ONCE_MILLISECONDS 50.0
#define CLOSE 1.25             /* slower by this factor after two runs: drops out */
#define LONG_MILLISECONDS 50.0 /* longer runs vary little: two are enough */

typedef struct entrant {
    double milliseconds; /* the least; INFINITY: it has not run, or does not serve */
    bool out;
} entrant;

static yoke_status run_heat(const cpu_contest *contest, yoke_algorithms *algorithms,
                            entrant *entrants) {
    for (int i = 0; i < contest->count; i++) {
        double milliseconds = INFINITY;
        if (entrants[i].out) continue;
        TRY(yoke_algorithms_go_on(algorithms));
        yoke_status status = contest->run(contest->context, i, &milliseconds);
        if (status == YOKE_ERROR_DEVICE) {
            entrants[i] = (entrant){INFINITY, true};
            continue;
        }
        TRY(status);
        entrants[i].milliseconds = fmin(entrants[i].milliseconds, milliseconds);
    }
    return YOKE_OK;
}

static int best_of(const entrant *entrants, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (entrants[i].milliseconds < entrants[best].milliseconds) best = i;
    return entrants[best].milliseconds < INFINITY ? best : -1;
}

/* Returns how many are left. */
static int drop_slower(entrant *entrants, int count, double slowest) {
    int left = 0;
    for (int i = 0; i < count; i++) {
        entrants[i].out = entrants[i].out || entrants[i].milliseconds > slowest;
        left += !entrants[i].out;
    }
    return left;
}

yoke_status cpu_contest_hold(const cpu_contest *contest, yoke_algorithms *algorithms, int *best,
                             double *best_ms) {
    entrant entrants[CPU_CONTEST_CANDIDATES];
    assert(contest->count <= CPU_CONTEST_CANDIDATES);
    for (int i = 0; i < contest->count; i++)
        entrants[i] = (entrant){INFINITY, false};
    *best = contest->count - 1;
    *best_ms = 0;
    for (int heat = 0, left = contest->count; heat < HEATS && left > 1; heat++) {
        TRY(run_heat(contest, algorithms, entrants));
        *best = best_of(entrants, contest->count);
        if (*best < 0) return YOKE_OK;
        *best_ms = entrants[*best].milliseconds;
        left = drop_slower(entrants, contest->count,
                           heat > 0 ? CLOSE * *best_ms : HOPELESS * *best_ms + ONCE_MILLISECONDS);
        if (heat > 0 && *best_ms > LONG_MILLISECONDS) break;
    }
    return YOKE_OK;
}
