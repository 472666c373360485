/* SPDX-License-Identifier: Apache-2.0 */
/* How `yoke resize` reaches a process that trains, or launches ranks: a socket whose name is the
 * process's number, in Linux's abstract names, so that no file stays behind. Each side asks the
 * kernel who the other one is: only the same user and root are answered, and only the process of
 * that number answers. */
#ifndef CLI_CONTROL_H
#define CLI_CONTROL_H

#include <stdbool.h>
#include <stddef.h>

#define CONTROL_BYTES 1024 /* of a request or an answer, with its NUL */

/* Listens; without a socket, -1, nobody can ask. */
int control_open(void);
void control_close(int listening);

/* Writes what to tell the asking process; returns the exit code for it. */
typedef int (*control_answer)(const char *request, char text[CONTROL_BYTES], void *context);
/* Answers a process that asks, if there is one. It does not wait for one. */
void control_serve(int listening, control_answer answer, void *context);

/* Asks process `pid`. Returns its exit code, or that of a printed failure with text[0] = '\0'. */
int control_ask(int pid, const char *request, char text[CONTROL_BYTES]);

#endif
