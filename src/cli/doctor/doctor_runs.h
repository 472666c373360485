/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator makes of a diagnosed trace, and how to show both. */
#ifndef CLI_DOCTOR_DOCTOR_RUNS_H
#define CLI_DOCTOR_DOCTOR_RUNS_H

#include <stdio.h>

#include "cli/cli.h"
#include "doctor/doctor.h"

typedef struct doctor_run {
    yoke_simulation found;
    double step_ms; /* with Python's time of the trace, where the mode has none of its own */
    double speed;   /* rows a second, divided by those of the run as simulated */
} doctor_run;

typedef struct doctor_runs {
    doctor_run list[YOKE_SIMULATED_MODES];
    int count;
    int ran, best; /* -1: the run has no mode, or nothing is simulated */
    double error;  /* of the mode that ran: simulated / measured - 1 */
} doctor_runs;

void doctor_print_table(FILE *out, const yoke_doctor *doctor, const doctor_runs *runs);
yoke_status doctor_print_json(FILE *out, const yoke_doctor *doctor, const doctor_runs *runs);

#endif
