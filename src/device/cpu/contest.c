/* SPDX-License-Identifier: Apache-2.0 */
#include "device/cpu/contest.h"

#include <assert.h>
#include <math.h>

#define HEATS 2
#define COLD_HEATS 8 /* of one run each, the first of which may include work that is done once */
/* Runs shorter than this vary more. */
#define SHORT_MILLISECONDS 0.5
#define SHORT_HEATS 8
/* In a heat a candidate runs twice in a row, so that the second run finds its own data in the
 * caches, not another candidate's. The first run may include work that a process does once: oneDNN
 * generates the kernels of its products in 22 ms. So a first run alone drops nobody but who is
 * slower by this factor and these milliseconds. */
#define HOPELESS 3.0
#define ONCE_MILLISECONDS 50.0
#define CLOSE 1.25             /* slower by this factor in both runs of a heat: drops out */
#define LONG_MILLISECONDS 50.0 /* longer runs vary little: one heat is enough */

typedef struct entrant {
    double least_ms, second_ms; /* of all runs, and of the second ones; INFINITY: none yet */
    bool out;
} entrant;

static const entrant gone = {INFINITY, INFINITY, true};

static int best_of(const entrant *entrants, int count) {
    int best = -1;
    for (int i = 0; i < count; i++)
        if (entrants[i].second_ms < (best < 0 ? INFINITY : entrants[best].second_ms)) best = i;
    return best;
}

/* Twice; in a cold contest once. */
static yoke_status run_turn(const cpu_contest *contest, yoke_algorithms *algorithms, int candidate,
                            double hopeless_ms, bool first_heat, entrant *to) {
    for (int run = 0; run < (contest->cold ? 1 : 2) && !to->out; run++) {
        double milliseconds = INFINITY;
        TRY(yoke_algorithms_go_on(algorithms));
        yoke_status status = contest->run(contest->context, candidate, &milliseconds);
        if (status == YOKE_ERROR_DEVICE) {
            *to = gone;
            return YOKE_OK;
        }
        TRY(status);
        to->least_ms = fmin(to->least_ms, milliseconds);
        if (contest->cold ? !first_heat : run > 0)
            to->second_ms = fmin(to->second_ms, milliseconds);
        to->out = to->least_ms > hopeless_ms;
    }
    return YOKE_OK;
}

static yoke_status run_heat(const cpu_contest *contest, yoke_algorithms *algorithms, bool first,
                            entrant *entrants) {
    for (int i = 0; i < contest->count; i++) {
        int best = best_of(entrants, contest->count);
        double hopeless_ms =
            best < 0 ? INFINITY : HOPELESS * entrants[best].second_ms + ONCE_MILLISECONDS;
        TRY(run_turn(contest, algorithms, i, hopeless_ms, first, &entrants[i]));
    }
    return YOKE_OK;
}

/* Returns how many are left. */
static int drop_slower(entrant *entrants, int count, double slowest_ms) {
    int left = 0;
    for (int i = 0; i < count; i++) {
        entrants[i].out = entrants[i].out || entrants[i].least_ms > slowest_ms;
        left += !entrants[i].out;
    }
    return left;
}

yoke_status cpu_contest_hold(const cpu_contest *contest, yoke_algorithms *algorithms, int *best,
                             double *best_ms) {
    entrant entrants[CPU_CONTEST_CANDIDATES];
    assert(contest->count <= CPU_CONTEST_CANDIDATES);
    for (int i = 0; i < contest->count; i++)
        entrants[i] = (entrant){INFINITY, INFINITY, false};
    *best = contest->count - 1;
    *best_ms = 0;
    int heats = contest->cold ? COLD_HEATS : HEATS;
    for (int heat = 0, left = contest->count; heat < heats && left > 1; heat++) {
        TRY(run_heat(contest, algorithms, heat == 0, entrants));
        /* Those left of a cold contest would find their own data in the caches. */
        if (contest->cold && heat + 1 < heats) continue;
        *best = best_of(entrants, contest->count);
        if (*best < 0) return YOKE_OK;
        *best_ms = entrants[*best].second_ms;
        left = drop_slower(entrants, contest->count, CLOSE * *best_ms);
        if (*best_ms > LONG_MILLISECONDS) break;
        if (*best_ms < SHORT_MILLISECONDS && !contest->cold) heats = SHORT_HEATS;
    }
    return YOKE_OK;
}
