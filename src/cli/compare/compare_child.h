/* SPDX-License-Identifier: Apache-2.0 */
/* A process that works for a contender and ends with this one. It hears and answers over a socket,
 * which has the same number in every such process. */
#ifndef CLI_COMPARE_CHILD_H
#define CLI_COMPARE_CHILD_H

#include <stdbool.h>
#include <sys/types.h>

#include "cli/launch/launch_guard.h"
#include "yoke/status.h"

/* The folder where ranks meet: only this user can open it, and it ends with this process. */
typedef struct compare_meeting {
    char folder[LAUNCH_FOLDER_BYTES];
    launch_guard guard;
} compare_meeting;

/* -1, or the exit code behind a printed error. */
int compare_meeting_open(compare_meeting *meeting);
void compare_meeting_close(compare_meeting *meeting);

#define COMPARE_CHILD_SOCKET 3 /* the child's descriptor */

typedef struct compare_command {
    const char *program;          /* a path, or a name on PATH */
    const char *const *words;     /* NULL behind the last */
    const char *const *variables; /* the environment; NULL: this process's */
    const char *output_path;      /* what it prints on stdout and stderr; NULL: stdout is dropped */
    int socket_type;              /* SOCK_SEQPACKET: messages; SOCK_STREAM: bytes */
} compare_command;

typedef struct compare_child {
    pid_t pid;  /* 0: none */
    int socket; /* -1: none */
} compare_child;

yoke_status compare_child_start(compare_child *child, const compare_meeting *meeting,
                                const compare_command *command);
/* Kills it, and all that it started. */
void compare_child_reap(compare_child *child, const compare_meeting *meeting);
/* "died of signal 9 (Killed)", of a child that has ended or is about to. */
#define COMPARE_END_BYTES 128
void compare_child_describe_end(const compare_child *child, char text[COMPARE_END_BYTES]);
/* Whether such a child ended because there is no program of that name. */
bool compare_child_is_no_program(const compare_child *child);
/* Processor time, in seconds. */
double compare_child_seconds(const compare_child *child);

#endif
