/* SPDX-License-Identifier: Apache-2.0 */
/* A student's exchange on made-up gradients: are the sums right, does it write where it may, and
 * how long does it take on modelled links? */
#ifndef CLI_EXCHANGE_TRIAL_H
#define CLI_EXCHANGE_TRIAL_H

#include "yoke/yoke.h"

#define TRIAL_TEXT 600
#define TRIAL_CASE 80

/* Shared with the process that runs the exchange. */
typedef struct exchange_trial {
    char doing[TRIAL_CASE]; /* the case in progress */
    char wrong[TRIAL_TEXT]; /* empty: nothing so far */
    int cases;
    int refused; /* the exit code behind a printed error; 0: it was opened */
    bool done;
    double sent;                               /* times the least that a sum takes */
    double own_ms, ring_ms, chain_ms, root_ms; /* of TRIAL_DEVICES and TRIAL_COUNT */
} exchange_trial;

#define TRIAL_DEVICES 4
#define TRIAL_COUNT ((size_t)272474) /* resnet20's */
#define TRIAL_LINK "0.3,20"

/* In a process of its own: an exchange may crash or never end. */
void exchange_trial_run(exchange_trial *trial, const yoke_custom_exchange *exchange);

#endif
