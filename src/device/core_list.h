/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of cores, "0-3,8", as the system writes them below /sys. */
#ifndef DEVICE_CORE_LIST_H
#define DEVICE_CORE_LIST_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads "0-3,8\n". False: it is no list of cores. */
bool yoke_core_list_parse(const char *text, cpu_set_t *cores);
/* Writes "0-3,8", cut with "..." where it does not fit. */
void yoke_core_list_write(const cpu_set_t *cores, char *text, size_t size);
/* Reads the file at `path`. False: there is none, or it holds no list. */
bool yoke_core_list_read(const char *path, cpu_set_t *cores);
/* Reads one number, and moves `at` behind it. */
bool yoke_core_list_number(const char **at, long *number);

#endif
