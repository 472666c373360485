/* SPDX-License-Identifier: Apache-2.0 */
/* What the processor is, and what oneDNN makes of it. */
#ifndef DEVICE_CPU_PROCESSOR_H
#define DEVICE_CPU_PROCESSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* From the text of /proc/cpuinfo, which has a "model name" on x86 and numbers on arm64:
 * "AMD EPYC 9654", "Arm Neoverse-V2". NULL: there is no such file. */
void cpu_processor_name(FILE *cpuinfo, char *name, size_t size);

/* Whether oneDNN computes products in bfloat16 here. */
bool cpu_computes_bfloat16(void);

/* Whether oneDNN, and Yoke's own kernels, use vectors of 512 bits. */
bool cpu_has_avx512(void);

/* Whether oneDNN computes an inner product by its sgemm: on x86 without AVX-512. */
bool cpu_prefers_sgemm(void);

#endif
