/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: how a stage is called, and where its source is. */
#ifndef REPORT_STAGE_FACTS_H
#define REPORT_STAGE_FACTS_H

#include "report/report.h"

typedef struct stage_fact {
    const char *name, *what;
    const char *source; /* below the root of Yoke's source; NULL: no stage */
} stage_fact;

/* stage: a yoke_stage or YOKE_STAGE_IDLE. */
stage_fact yoke_stage_fact(int stage);

#endif
