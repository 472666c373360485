/* The order of the stages by hand: a stage refuses to run on what an earlier one has not made, or a
 * later one has written over. */
#include "parallel/engine.h"

yoke_status yoke_check_progress(const yoke_data_parallel *parallel, const char *stage,
                                yoke_stage first, yoke_stage last) {
    if (parallel == NULL) return FAIL(YOKE_ERROR_ARGUMENT, "%s: the engine is NULL", stage);
    if (parallel->progress >= first && parallel->progress <= last) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s comes after %s; the last stage of this batch was %s",
                stage, yoke_stage_name(first), yoke_stage_name(parallel->progress));
}

yoke_status yoke_check_trained(const yoke_data_parallel *parallel, const char *stage) {
    if (parallel->training) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "%s: the forward before it was in evaluation mode", stage);
}

yoke_status yoke_check_answers(const yoke_data_parallel *parallel, const yoke_batch *batch) {
    if (parallel->classification)
        return batch->labels != NULL ? YOKE_OK
                                     : FAIL(YOKE_ERROR_ARGUMENT,
                                            "the batch has no labels, which cross-entropy needs");
    return batch->targets != NULL
               ? YOKE_OK
               : FAIL(YOKE_ERROR_ARGUMENT, "the batch has no targets, which an MSE loss needs");
}
