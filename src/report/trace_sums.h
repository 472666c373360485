/* SPDX-License-Identifier: Apache-2.0 */
/* Inside report: sums up the spans of a trace. */
#ifndef REPORT_TRACE_SUMS_H
#define REPORT_TRACE_SUMS_H

#include "report/report.h"

/* Appends a lane's pieces of a step. */
yoke_status yoke_report_add_pieces(yoke_report_lane *lane, const yoke_piece *pieces, size_t count,
                                   uint64_t begin_ns);
/* Fills in the lanes and the step of a mode from the last complete steps. Sorts the events. DATA:
 * no complete step. */
yoke_status yoke_trace_file_sum(trace_file *file, yoke_report_mode *mode);

#endif
