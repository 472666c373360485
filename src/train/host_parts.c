/* SPDX-License-Identifier: Apache-2.0 */
/* The parts that a host program may bring, a model, a loss and metrics, and what stands in for
 * them. */
#include <stdlib.h>

#include "data/data.h"
#include "train/run.h"

static yoke_status check_own_loss(const yoke_trainer_options *options, const yoke_own_loss *loss) {
    if (loss->compute == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "own_loss has no `compute`: set the function");
    if (options->engine->shards > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "own_loss with %d shards: a loss of the host program sees a batch, not its "
                    "shards; leave one of the two out",
                    options->engine->shards);
    if (options->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL &&
        options->engine->schedule == YOKE_SCHEDULE_SHARDED)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "own_loss in DDP's sharded schedule, whose ranks never hold a whole gradient: "
                    "take the schedule overlap");
    return YOKE_OK;
}

static yoke_status check_own_model(const yoke_trainer_options *options) {
    if (options->model != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "model %s and own_model are both set: leave one NULL",
                    options->model);
    if (options->loss != NULL || options->label_smoothing > 0 || options->balanced_class_weights)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "own_model has a loss: leave loss, label_smoothing and balanced_class_weights "
                    "out, and give yoke_model_finish the options");
    return YOKE_OK;
}

yoke_status yoke_trainer_check_host_parts(yoke_trainer *trainer) {
    yoke_trainer_options *options = &trainer->options;
    if (options->own_model != NULL) TRY(check_own_model(options));
    if (options->loss != NULL && options->label_smoothing > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "label_smoothing is %g and loss is set: give it in loss->label_smoothing",
                    options->label_smoothing);
    if (options->own_loss != NULL) {
        TRY(yoke_options_load(&trainer->own_loss, sizeof trainer->own_loss, options->own_loss,
                              "yoke_own_loss"));
        TRY(check_own_loss(options, &trainer->own_loss));
    }
    if (options->model == NULL)
        options->model =
            options->own_model != NULL ? yoke_model_name(options->own_model) : "resnet20";
    return yoke_own_metrics_open(&trainer->own_metrics, options->own_metrics,
                                 options->metric_count);
}

/* The model. */

static yoke_status check_shape(const yoke_trainer *trainer) {
    const yoke_model *model = trainer->options.own_model;
    yoke_shape reads = yoke_model_input_shape(model), rows = trainer->dataset.shape;
    if (yoke_model_input_count(model) != 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "model '%s' has %d inputs, a dataset's rows are one: take "
                    "yoke_data_parallel_step",
                    yoke_model_name(model), yoke_model_input_count(model));
    if (reads.channels == rows.channels && reads.height == rows.height && reads.width == rows.width)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' reads %dx%dx%d, rows of %s are %dx%dx%d",
                yoke_model_name(model), reads.channels, reads.height, reads.width,
                trainer->dataset.name, rows.channels, rows.height, rows.width);
}

static yoke_status check_outputs(const yoke_trainer *trainer) {
    const yoke_model *model = trainer->options.own_model;
    const yoke_dataset_info *rows = &trainer->dataset;
    bool labels = rows->classes > 0;
    int outputs = labels ? yoke_model_output_shape(model).channels
                         : (int)yoke_model_output_elements(model, 0);
    if (labels != yoke_model_reads_labels(model))
        return FAIL(YOKE_ERROR_ARGUMENT, "the %s loss of model '%s' compares with %s, %s has %s",
                    yoke_model_loss_name(model), yoke_model_name(model),
                    labels ? "targets" : "labels", rows->name, labels ? "labels" : "targets");
    if (outputs == (labels ? rows->classes : rows->target_count)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' has %d outputs, %s has %d %s",
                yoke_model_name(model), outputs, rows->name,
                labels ? rows->classes : rows->target_count, labels ? "classes" : "targets");
}

/* Rows of each class whose label counts; the caller frees them. */
static yoke_status count_classes(const yoke_trainer *trainer, const yoke_loss_options *loss,
                                 size_t **counts, size_t *all) {
    const yoke_dataset *rows = trainer->training_rows;
    size_t classes = (size_t)trainer->dataset.classes, each = yoke_dataset_labels(rows);
    *counts = calloc(classes, sizeof **counts);
    if (*counts == NULL) return FAIL_MEMORY(classes * sizeof **counts, "rows of classes");
    for (size_t i = 0; i < rows->rows * each; i++) {
        int32_t label = rows->labels[yoke_dataset_stored(rows, i / each) * each + i % each];
        if (loss->set_ignore_index && label == loss->ignore_index) continue;
        if (label < 0 || (size_t)label >= classes) /* the host program has changed it */
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s: row %zu has label %d now, and there are %zu "
                        "classes",
                        trainer->dataset.name, i / each, (int)label, classes);
        (*counts)[label]++;
        (*all)++;
    }
    return YOKE_OK;
}

/* rows / (classes * rows of the class); 0 for a class without rows. */
static yoke_status balance(const yoke_trainer *trainer, yoke_loss_options *loss, float **weights) {
    size_t classes = (size_t)trainer->dataset.classes, all = 0, *counts = NULL;
    bool known = trainer->training_rows->labels != NULL;
    if (!known || loss->class_weights != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "balanced_class_weights for %s: %s", trainer->dataset.name,
                    known ? "class_weights are set, too; leave one of the two out"
                          : "its labels are not known before they are read; give class_weights");
    *weights = calloc(classes, sizeof **weights);
    if (*weights == NULL) return FAIL_MEMORY(classes * sizeof **weights, "class weights");
    yoke_status status = count_classes(trainer, loss, &counts, &all);
    for (size_t c = 0; c < classes && status == YOKE_OK; c++)
        if (counts[c] > 0)
            (*weights)[c] = (float)((double)all / ((double)classes * (double)counts[c]));
    free(counts);
    loss->class_weights = *weights;
    loss->weight_count = (int)classes;
    return YOKE_OK;
}

static yoke_status loss_of_preset(const yoke_trainer *trainer, yoke_loss_options *loss,
                                  float **weights) {
    const yoke_trainer_options *options = &trainer->options;
    const yoke_dataset_info *rows = &trainer->dataset;
    bool labels = rows->classes > 0;
    *loss = (yoke_loss_options)YOKE_LOSS_OPTIONS_INIT;
    loss->kind = labels ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE;
    loss->label_smoothing = options->label_smoothing;
    if (options->loss != NULL)
        TRY(yoke_options_load(loss, sizeof *loss, options->loss, "yoke_loss_options"));
    if (labels != (loss->kind == YOKE_LOSS_CROSS_ENTROPY))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %s: %s", rows->name, labels ? "labels" : "targets",
                    labels ? "its loss is cross-entropy, or own_loss; MSE, BCE and Huber compare "
                             "with targets"
                           : "its loss is MSE, BCE, Huber or own_loss; cross-entropy compares with "
                             "labels");
    return options->balanced_class_weights ? balance(trainer, loss, weights) : YOKE_OK;
}

static yoke_status build_preset(yoke_trainer *trainer) {
    const yoke_dataset_info *rows = &trainer->dataset;
    yoke_loss_options loss;
    float *weights = NULL;
    yoke_status status = loss_of_preset(trainer, &loss, &weights);
    if (status == YOKE_OK)
        status = yoke_model_preset(&trainer->preset, trainer->options.model, rows->shape,
                                   rows->classes > 0 ? rows->classes : rows->target_count, &loss);
    free(weights);
    trainer->model = trainer->preset;
    if (status != YOKE_OK)
        yoke_error_prefix("%s for %s (%dx%dx%d)", trainer->options.model, trainer->options.dataset,
                          rows->shape.channels, rows->shape.height, rows->shape.width);
    return status;
}

static yoke_status check_labels(const yoke_trainer *trainer) {
    const yoke_dataset_info *rows = &trainer->dataset;
    size_t positions = yoke_model_positions(trainer->model);
    if (rows->classes == 0 || (size_t)rows->label_count == positions) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s has %d labels a row, and %s predicts %zu: text needs gpt2, and the other "
                "models need rows with one label",
                trainer->options.dataset, rows->label_count, trainer->options.model, positions);
}

static yoke_status check_mixup(const yoke_trainer *trainer) {
    if (trainer->options.mixup == 0 || trainer->own_loss.compute != NULL ||
        !yoke_model_has_ignore_index(trainer->model))
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "mixup %g with ignore_index: PyTorch's cross-entropy ignores no label of a mixture "
                "either; leave one of the two out",
                trainer->options.mixup);
}

yoke_status yoke_trainer_open_model(yoke_trainer *trainer) {
    if (trainer->options.own_model == NULL) {
        TRY(build_preset(trainer));
    } else {
        TRY(check_shape(trainer));
        if (trainer->own_loss.compute == NULL) TRY(check_outputs(trainer));
        trainer->model = trainer->options.own_model;
    }
    yoke_operation loss;
    if (trainer->own_loss.compute == NULL) TRY(check_labels(trainer));
    TRY(check_mixup(trainer));
    TRY(yoke_model_loss_operation(trainer->model, &loss));
    trainer->options.label_smoothing = loss.label_smoothing; /* of the records */
    trainer->options.loss = NULL;                            /* may be gone after create */
    return YOKE_OK;
}

/* Memory for outputs. */

static yoke_status reserve(float **rows, size_t count) {
    *rows = malloc(count * sizeof **rows);
    return *rows != NULL ? YOKE_OK : FAIL_MEMORY(count * sizeof **rows, "outputs on the host");
}

yoke_status yoke_trainer_open_host_rows(yoke_trainer *trainer) {
    yoke_output_rows *rows = &trainer->host_rows;
    bool own_loss = trainer->own_loss.compute != NULL;
    bool tallies = trainer->options.mistakes > 0 && trainer->dataset.classes > 0;
    bool first = own_loss || trainer->own_metrics.count > 0 || tallies;
    int wanted = own_loss ? yoke_model_output_count(trainer->model) : first;
    for (int k = 0; k < wanted; k++) {
        size_t count =
            (size_t)trainer->options.batch * yoke_model_output_elements(trainer->model, k);
        TRY(reserve(&rows->outputs[k], count));
        if (own_loss) TRY(reserve(&rows->gradients[k], count));
    }
    return YOKE_OK;
}

void yoke_trainer_close_host_parts(yoke_trainer *trainer) {
    for (int k = 0; k < YOKE_OUTPUTS_LIMIT; k++) {
        free(trainer->host_rows.outputs[k]);
        free(trainer->host_rows.gradients[k]);
    }
    yoke_own_metrics_close(&trainer->own_metrics);
    yoke_model_destroy(trainer->preset);
}
