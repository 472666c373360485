/* The door of parallel: nn.DataParallel, one file per stage. */
#ifndef PARALLEL_PARALLEL_H
#define PARALLEL_PARALLEL_H

#include "model/model.h"
#include "optimizer/optimizer.h"
#include "trace/trace.h"
#include "yoke/data_parallel.h"

/* What train needs beyond the public calls. */
const yoke_model *yoke_data_parallel_model(const yoke_data_parallel *parallel);
/* Makes every plan for these batch sizes ahead of the first step (short last batch, evaluation). */
yoke_status yoke_data_parallel_prepare(yoke_data_parallel *parallel, int rows, bool training);
/* Makes the calling thread the root's worker until released: bound to its cores. */
yoke_status yoke_data_parallel_bind(yoke_data_parallel *parallel);
void yoke_data_parallel_release(yoke_data_parallel *parallel);
uint64_t yoke_data_parallel_batches_tracked(const yoke_data_parallel *parallel);
void yoke_data_parallel_set_batches_tracked(yoke_data_parallel *parallel, uint64_t count);
uint64_t yoke_data_parallel_steps(const yoke_data_parallel *parallel);
/* Sum of the root replica's plan calls and the update, each timed alone; see yoke_replica_time_alone. */
yoke_status yoke_data_parallel_time_alone(yoke_data_parallel *parallel, int repeat, double *sum_ms);

#endif
