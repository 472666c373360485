/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the library's own. */
#ifndef BASE_THREAD_H
#define BASE_THREAD_H

#include <pthread.h>

/* Returns 0 or an errno, as pthread_create does. The host program's threads handle its signals: the
 * new thread accepts only those that a thread's own instructions cause (base/signals.h). */
int yoke_thread_start(pthread_t *thread, void *(*run)(void *), void *context);

#endif
