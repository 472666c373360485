/* SPDX-License-Identifier: Apache-2.0 */
/* `yoke bench --drive` runs engines for another program's race: it reads requests on stdin and
 * answers each with a line of JSON on stdout. */
#ifndef BENCH_TOOL_BENCH_DRIVE_H
#define BENCH_TOOL_BENCH_DRIVE_H

/* Requests, one a line; NAME is the name that `open` gave to an engine:
 *   open NAME model=M devices=LIST rows=N [precision=P] [schedule=S] [side=N] [classes=N]
 *        [threads=N] [algorithm=A] [collectives=C] [learning_rate=R] [inference=1]
 *                     made_ms: how long creating the engine took
 *   open NAME model=M ranks=N rows=N ...  ranks of DDP, which serve steps and close only
 *   weights NAME FILE  writes float32 values of all tensors but integers, as in state_dict;
 *                      answers their names, counts and shapes
 *   batch NAME FILE    writes float32 inputs, then int32 labels, of text one for each token
 *   steps NAME N       mean wall and processor milliseconds of N steps, and the last loss;
 *                      of ranks, the wall milliseconds of the slowest
 *   forward NAME N [FILE]
 *                      mean milliseconds of N forwards in evaluation mode; writes the outputs
 *   kernel_time NAME alone|in-order N
 *                      milliseconds of the kernels of a step, best of N
 *   algorithms NAME    [layer, operation, direction, algorithm] of each kernel call of a step that
 *                      has several
 *   close NAME
 *
 * A request that fails gets {"error": text}. The program ends with stdin; returns its exit code. */
int bench_drive(void);

#endif
