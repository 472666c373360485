/* SPDX-License-Identifier: Apache-2.0 */
/* What came out, computed from the JSON of a lesson's commands. */
#ifndef CLI_LESSON_MEASURE_H
#define CLI_LESSON_MEASURE_H

#include "cli/lesson/lesson.h"

/* Numbers, + - * / ==, brackets, and
 *
 *   $2.step_ms.median                    a member of the JSON of command 2
 *   $1.runs[mode=ddp-ring,devices=8]     the first element whose members have these values
 *   $1.peak_bytes[0]                     an element
 *   mean($1.staleness)                   of a histogram: the mean of the indices
 *   idle(S, M)                           the share of a step in which a device is idle: a pipeline
 *                                        of S equal stages and M micro-batches, played
 *   least(S, X)                          the fewest micro-batches with idle(S, M) <= X
 *
 * == compares texts, too, and is 1 or 0. INTERNAL: the JSON has no such member, which the text
 * names; the tool and the table are of one version. */
yoke_status lesson_measure(json_t *const *results, int count, const char *expression,
                           double *number);

/* Cuts "NAME = EXPRESSION; ..." and measures each. Returns how many; -1: *status says why. */
int lesson_measure_order(json_t *const *results, int count, const char *expressions,
                         char names[LESSON_NAMES][32], double values[LESSON_NAMES],
                         yoke_status *status);

#endif
