/* Engines for another program's race: it says on stdin what to make and how many steps to run, and
 * reads a line of JSON for each request on stdout. */
#ifndef CLI_BENCH_DRIVE_H
#define CLI_BENCH_DRIVE_H

/* Requests, a line each; WORD names an engine:
 *   open WORD model=NAME devices=LIST rows=N [precision=P] [schedule=S] [side=N] [threads=N]
 *        [algorithm=A]
 *   open WORD model=NAME ranks=N rows=N ...  DDP's ranks, a CPU device each: steps and close only
 *   weights WORD FILE   float32 of every tensor but integers, in state_dict order
 *   batch WORD FILE     float32 inputs, then int32 labels
 *   steps WORD N        mean wall and processor milliseconds of N steps, loss of the last; of
 * ranks: the slowest's mean wall milliseconds floor WORD HOW N    milliseconds of a step's kernels,
 * HOW alone or in-order, N times close WORD A request that fails is answered {"error": text}; the
 * end of stdin ends the program. */
int bench_drive(void);

#endif
