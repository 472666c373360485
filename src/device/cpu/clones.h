/* SPDX-License-Identifier: Apache-2.0 */
/* CPU_CLONES compiles a function for several instruction sets; the dynamic loader picks one. It
 * picks before a sanitizer's runtime is ready, so sanitizer builds compile the plain loop only. */
#ifndef DEVICE_CPU_CLONES_H
#define DEVICE_CPU_CLONES_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CPU_CLONES
#elif defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CPU_CLONES
#endif

#endif
