/* SPDX-License-Identifier: Apache-2.0 */
/* What a test in C sees and steers of the simulated CUDA; sim.h explains the words. */
#ifndef SIMCUDA_CONTROL_H
#define SIMCUDA_CONTROL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

void simcuda_fail_call(uint64_t index); /* from now on; 0: none. The count begins again */
uint64_t simcuda_calls_so_far(void);
uint64_t simcuda_calls_of(const char *call); /* those of one name */
void simcuda_print_calls(void);
const char *simcuda_failed_call(void); /* NULL: none did */
/* Kernels, copies and fills that streams were given, those of a graph at each of its launches. */
uint64_t simcuda_works_so_far(void);
/* NCCL's collectives so far: the elements of each times their bytes, of an all-gather and a
 * reduce-scatter a rank's part. */
uint64_t simcuda_collective_bytes(void);
size_t simcuda_outstanding(void);
void simcuda_print_outstanding(void);

#ifdef __cplusplus
}
#endif

#endif
