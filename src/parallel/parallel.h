/* The door of parallel: nn.DataParallel, one file per stage. */
#ifndef PARALLEL_PARALLEL_H
#define PARALLEL_PARALLEL_H

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "trace/trace.h"
#include "yoke/data_parallel.h"

/* What train needs beyond the public calls. */
const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel);
uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel);
void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count);
uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel);
/* The trace to record spans in. yoke_data_parallel_trace waits for the devices, this does not. */
yoke_trace *yoke_data_parallel_recorder(const yoke_data_parallel *parallel);

#endif
