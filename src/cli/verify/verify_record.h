/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in files: --record writes one, --against reads one. A file holds step_000003/NAME for every
 * tensor after step 3 (0: before the first), gradient_000003/NAME, batch_000003/inputs and /labels,
 * and the configuration as texts. */
#ifndef CLI_VERIFY_RECORD_H
#define CLI_VERIFY_RECORD_H

#include "cli/verify/verify_mode.h"

/* What a run is, besides its setup. */
typedef struct verify_run {
    const compare_setup *setup;
    int steps;
    int every; /* files hold the tensors of every so many steps, of the first and of the last */
} verify_run;

bool verify_is_recorded(const verify_run *run, int step);

/* A new file with the run's configuration and the engine's algorithms; refuses runs that do not fit
 * into memory. */
yoke_status verify_record_begin(yoke_tensor_file **file, const verify_run *run,
                                const compare_engine *engine);
yoke_status verify_record_batch(yoke_tensor_file *file, int step, const yoke_batch *batch,
                                const yoke_model *model);
yoke_status verify_record_step(yoke_tensor_file *file, int step, const verify_mode *mode,
                               const yoke_model *model);

/* Opens a file, refuses one of another configuration, and sets run->every to the file's. */
yoke_status verify_against_open(yoke_tensor_file **file, const char *path, verify_run *run);
/* Whether this tool wrote it; a run of another program is equal up to rounding only. */
bool verify_is_own(const yoke_tensor_file *file);

#endif
