/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: how a stage is called, coloured, and where its source is. */
#ifndef REPORT_STAGE_FACTS_H
#define REPORT_STAGE_FACTS_H

#include "report/report.h"
#include "report/svg.h"

typedef struct stage_fact {
    const char *name, *what;
    const char *source; /* below the root of Yoke's source; NULL: no stage */
} stage_fact;

/* stage: a yoke_stage or YOKE_STAGE_IDLE. */
stage_fact yoke_stage_fact(int stage);
/* The class of its colour. */
yoke_svg_part yoke_stage_part(int stage);

#endif
