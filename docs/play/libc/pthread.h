/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of base name this type. The page has one thread, and its C library has no threads. */
#include <sys/types.h>
