/* SPDX-License-Identifier: Apache-2.0 */
/* One pass over a dataset, for programs without a trainer. */
#include "yoke/evaluation.h"

#include <stdlib.h>

#include "parallel/parallel.h"
#include "train/predictions.h"
#include "train/weights_match.h"

struct yoke_evaluation {
    yoke_tally tally;
    yoke_output_rows outputs; /* of a batch, for the tally */
    double loss, weight;      /* loss: a sum until all are added */
    size_t rows;
    int classes;
    int64_t labels, correct;
    size_t not_finite, first_not_finite;
};

/* Rows as pixels have no inputs; those are finite. */
static void count_not_finite(yoke_evaluation *made, const yoke_batch *batch) {
    size_t values = batch->inputs_count / (size_t)batch->rows;
    for (size_t row = 0; values > 0 && row < (size_t)batch->rows; row++) {
        size_t finite = yoke_count_finite(batch->inputs + row * values, values);
        if (finite < values && made->not_finite++ == 0) made->first_not_finite = made->rows + row;
    }
}

static yoke_status add_batches(yoke_evaluation *made, yoke_data_parallel *parallel,
                               yoke_loader *loader) {
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(yoke_loader_begin(loader, 0));
    for (;;) {
        yoke_step_result result = {.struct_size = sizeof result};
        TRY(yoke_loader_next(loader, &batch, NULL));
        if (batch.rows == 0 && made->rows == 0)
            return FAIL(YOKE_ERROR_DATA, "the row stream gave no row to evaluate on");
        if (batch.rows == 0) return YOKE_OK;
        TRY(yoke_data_parallel_evaluate_outputs(parallel, &batch, &result, &made->outputs, NULL));
        yoke_tally_add(&made->tally,
                       &(yoke_tally_rows){&batch, made->outputs.outputs[0],
                                          yoke_data_parallel_model(parallel), made->rows});
        count_not_finite(made, &batch);
        made->loss += result.loss * result.weight;
        made->weight += result.weight;
        made->rows += (size_t)result.rows;
        made->labels += result.labels;
        made->correct += result.correct;
    }
}

static yoke_status run(yoke_evaluation *made, yoke_data_parallel *parallel, yoke_loader *loader) {
    const yoke_model *model = yoke_data_parallel_model(parallel);
    yoke_shape output = yoke_model_output_shape(model);
    bool classifies = yoke_model_loss_kind(model) == YOKE_LOSS_CROSS_ENTROPY;
    if (classifies) made->classes = output.channels;
    size_t rows = (size_t)yoke_data_parallel_options_of(parallel)->batch;
    size_t bytes = rows * yoke_model_output_elements(model, 0) * sizeof(float);
    if (classifies && output.flat) { /* one class a row, not one at each position */
        TRY(yoke_tally_create(&made->tally, output.channels, 0));
        made->outputs.outputs[0] = yoke_malloc(bytes);
        if (made->outputs.outputs[0] == NULL) return FAIL_MEMORY(bytes, "outputs of a batch");
    }
    TRY(add_batches(made, parallel, loader));
    made->loss /= made->weight > 0 ? made->weight : 1;
    return YOKE_OK;
}

yoke_status yoke_evaluation_run(yoke_evaluation **evaluation, yoke_data_parallel *parallel,
                                yoke_loader *loader) {
    TRY(yoke_pointer_check(evaluation, "evaluation"));
    *evaluation = NULL;
    TRY(yoke_pointer_check(parallel, "parallel"));
    TRY(yoke_pointer_check(loader, "loader"));
    yoke_evaluation *made = yoke_calloc(1, sizeof *made);
    if (made == NULL) return FAIL_MEMORY(sizeof *made, "an evaluation");
    yoke_status status = run(made, parallel, loader);
    if (status != YOKE_OK) {
        yoke_evaluation_destroy(made);
        return status;
    }
    *evaluation = made;
    return YOKE_OK;
}

void yoke_evaluation_destroy(yoke_evaluation *evaluation) {
    if (evaluation == NULL) return;
    yoke_free(evaluation->outputs.outputs[0]);
    yoke_tally_end(&evaluation->tally);
    yoke_free(evaluation);
}

yoke_status yoke_evaluation_describe(const yoke_evaluation *evaluation,
                                     yoke_evaluation_info *info) {
    TRY(yoke_pointer_check(evaluation, "evaluation"));
    const yoke_tally *tally = &evaluation->tally;
    yoke_evaluation_info own = {.struct_size = sizeof own,
                                .rows = evaluation->rows,
                                .loss = evaluation->loss,
                                .classes = evaluation->classes,
                                .labels = evaluation->classes > 0 ? evaluation->labels : 0,
                                .correct = evaluation->classes > 0 ? evaluation->correct : 0,
                                .among_five = tally->among_five,
                                .counts = tally->counts,
                                .tallied = tally->rows,
                                .not_finite = evaluation->not_finite,
                                .first_not_finite = evaluation->first_not_finite};
    return yoke_options_store(info, &own, sizeof own, "yoke_evaluation_info");
}
