/* SPDX-License-Identifier: Apache-2.0 */
#include "train/custom_parts.h"

#include <stdlib.h>

static yoke_status check_custom_loss(const yoke_trainer_options *options,
                                     const yoke_custom_loss *loss) {
    if (loss->compute == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "custom_loss has no `compute`: set the function");
    if (options->engine->shards > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "custom_loss with %d shards: a loss of the host program sees a batch, not its "
                    "shards; leave one of the two out",
                    options->engine->shards);
    if (options->mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL &&
        options->engine->schedule == YOKE_SCHEDULE_SHARDED)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "custom_loss in DDP's sharded schedule, whose ranks never hold a whole gradient: "
            "take the schedule overlap");
    return YOKE_OK;
}

yoke_status yoke_custom_parts_check(yoke_custom_parts *parts, yoke_trainer_options *options) {
    if (options->custom_model != NULL && options->model != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "model %s and custom_model are both set: leave one NULL",
                    options->model);
    if (options->custom_model != NULL &&
        (options->loss != NULL || options->label_smoothing > 0 || options->balanced_class_weights))
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "custom_model has a loss: leave loss, label_smoothing and balanced_class_weights "
            "out, and give yoke_model_finish the options");
    if (options->loss != NULL && options->label_smoothing > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "label_smoothing is %g and loss is set: give it in loss->label_smoothing",
                    options->label_smoothing);
    if (options->custom_loss != NULL) {
        TRY(yoke_options_load(&parts->loss, sizeof parts->loss, options->custom_loss,
                              "yoke_custom_loss"));
        TRY(check_custom_loss(options, &parts->loss));
        options->custom_loss = &parts->loss;
    }
    if (options->model == NULL)
        options->model =
            options->custom_model != NULL ? yoke_model_name(options->custom_model) : "resnet20";
    return yoke_custom_metrics_open(&parts->metrics, options->custom_metrics,
                                    options->metric_count);
}

/* The model. */

static yoke_status check_shape(const yoke_run *run) {
    const yoke_model *model = run->options.custom_model;
    yoke_shape reads = yoke_model_input_shape(model), rows = run->training.info.shape;
    if (reads.channels == rows.channels && reads.height == rows.height && reads.width == rows.width)
        return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "model '%s' reads %dx%dx%d, rows of %s are %dx%dx%d",
                yoke_model_name(model), reads.channels, reads.height, reads.width,
                run->training.info.name, rows.channels, rows.height, rows.width);
}

static yoke_status check_outputs(const yoke_run *run) {
    const yoke_model *model = run->options.custom_model;
    const yoke_dataset_info *rows = &run->training.info;
    bool labels = rows->classes > 0;
    int outputs = labels ? yoke_model_output_shape(model).channels
                         : (int)yoke_model_output_elements(model, 0);
    if (!yoke_model_reads_labels(model) && !yoke_model_reads_targets(model)) return YOKE_OK;
    if (!labels && rows->target_count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "the %s loss of model '%s' compares with %s, and rows of %s have none: give "
                    "them, or let the model compute its loss (YOKE_LOSS_OUTPUT)",
                    yoke_model_loss_name(model), yoke_model_name(model),
                    yoke_model_reads_labels(model) ? "labels" : "targets", rows->name);
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
static yoke_status count_classes(const yoke_run *run, const yoke_loss_options *loss,
                                 size_t **counts, size_t *all) {
    const yoke_dataset *rows = run->training.rows;
    size_t classes = (size_t)run->training.info.classes, each = yoke_dataset_labels(rows);
    *counts = yoke_calloc(classes, sizeof **counts);
    if (*counts == NULL) return FAIL_MEMORY(classes * sizeof **counts, "rows of classes");
    for (size_t i = 0; i < rows->rows * each; i++) {
        int32_t label = rows->labels[yoke_dataset_stored(rows, i / each) * each + i % each];
        if (loss->set_ignore_index && label == loss->ignore_index) continue;
        if (label < 0 || (size_t)label >= classes) /* the host program has changed it */
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "%s: row %zu has label %d now, and there are %zu "
                        "classes",
                        run->training.info.name, i / each, (int)label, classes);
        (*counts)[label]++;
        (*all)++;
    }
    return YOKE_OK;
}

/* rows / (classes * rows of the class); 0 for a class without rows. */
static yoke_status balance(const yoke_run *run, yoke_loss_options *loss, float **weights) {
    size_t classes = (size_t)run->training.info.classes, all = 0, *counts = NULL;
    bool known = run->training.rows->labels != NULL;
    if (!known || loss->class_weights != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT, "balanced_class_weights for %s: %s",
                    run->training.info.name,
                    known ? "class_weights are set, too; leave one of the two out"
                          : "its labels are not known before they are read; give class_weights");
    *weights = yoke_calloc(classes, sizeof **weights);
    if (*weights == NULL) return FAIL_MEMORY(classes * sizeof **weights, "class weights");
    yoke_status status = count_classes(run, loss, &counts, &all);
    for (size_t c = 0; c < classes && status == YOKE_OK; c++)
        if (counts[c] > 0)
            (*weights)[c] = (float)((double)all / ((double)classes * (double)counts[c]));
    yoke_free(counts);
    loss->class_weights = *weights;
    loss->weight_count = (int)classes;
    return YOKE_OK;
}

static yoke_status loss_of_preset(const yoke_run *run, yoke_loss_options *loss, float **weights) {
    const yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *rows = &run->training.info;
    bool labels = rows->classes > 0;
    if (!labels && rows->target_count == 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s has neither labels nor targets to train with: a custom_model can compute "
                    "its loss of the inputs alone (YOKE_LOSS_OUTPUT)",
                    rows->name);
    loss->struct_size = sizeof *loss;
    TRY(yoke_dataset_default_loss(run->training.rows, loss));
    loss->label_smoothing = options->label_smoothing;
    if (options->loss != NULL)
        TRY(yoke_options_load(loss, sizeof *loss, options->loss, "yoke_loss_options"));
    if (labels && rows->unlabelled && !loss->set_ignore_index) {
        loss->set_ignore_index = true;
        loss->ignore_index = YOKE_NO_LABEL;
    }
    if (labels != (loss->kind == YOKE_LOSS_CROSS_ENTROPY))
        return FAIL(YOKE_ERROR_ARGUMENT, "%s has %s: %s", rows->name, labels ? "labels" : "targets",
                    labels
                        ? "its loss is cross-entropy, or custom_loss; MSE, BCE and Huber compare "
                          "with targets"
                        : "its loss is MSE, BCE, Huber or custom_loss; cross-entropy compares with "
                          "labels");
    return options->balanced_class_weights ? balance(run, loss, weights) : YOKE_OK;
}

/* The preset for rows of `positions` tokens. */
static yoke_status build_for(const yoke_run *run, const yoke_loss_options *loss, int positions,
                             yoke_model **model) {
    const yoke_dataset_info *rows = &run->training.info;
    yoke_shape shape = rows->shape;
    shape.channels = positions;
    return yoke_model_preset(model, run->options.model, shape,
                             rows->classes > 0 ? rows->classes : rows->target_count, loss);
}

/* The model of all positions, and those of a share of them. */
static yoke_status build_presets(yoke_custom_parts *parts, yoke_run *run,
                                 const yoke_loss_options *loss) {
    int buckets = run->options.length_buckets, whole = run->training.info.shape.channels;
    TRY(build_for(run, loss, whole, &parts->preset));
    for (int k = 1; k < buckets; k++) {
        int positions = (whole * k + buckets - 1) / buckets;
        TRY(build_for(run, loss, positions, &parts->shorter[k - 1]));
    }
    return YOKE_OK;
}

static yoke_status build_preset(yoke_custom_parts *parts, yoke_run *run) {
    const yoke_dataset_info *rows = &run->training.info;
    yoke_loss_options loss;
    float *weights = NULL;
    yoke_status status = loss_of_preset(run, &loss, &weights);
    if (status == YOKE_OK) status = build_presets(parts, run, &loss);
    yoke_free(weights);
    run->model = parts->preset;
    if (status != YOKE_OK)
        yoke_error_prefix("%s for %s (%dx%dx%d)", run->options.model, run->options.dataset,
                          rows->shape.channels, rows->shape.height, rows->shape.width);
    return status;
}

static yoke_status open_model(yoke_custom_parts *parts, yoke_run *run) {
    yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *rows = &run->training.info;
    bool custom_loss = options->custom_loss != NULL;
    yoke_operation loss;
    if (options->custom_model == NULL) {
        TRY(build_preset(parts, run));
    } else {
        TRY(check_shape(run));
        if (!custom_loss) TRY(check_outputs(run));
        run->model = options->custom_model;
    }
    size_t positions = yoke_model_positions(run->model);
    if (!custom_loss && rows->classes > 0 && (size_t)rows->label_count != positions)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "%s has %d labels a row, and %s predicts %zu: text needs gpt2, and the other "
                    "models need rows with one label",
                    options->dataset, rows->label_count, options->model, positions);
    if (!custom_loss && options->mixup != 0 && yoke_model_has_ignore_index(run->model))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "mixup %g with ignore_index: PyTorch's cross-entropy ignores no label of a "
                    "mixture either; leave one of the two out",
                    options->mixup);
    TRY(yoke_model_loss_operation(run->model, &loss));
    options->label_smoothing = loss.label_smoothing; /* of the records */
    options->loss = NULL;                            /* may be gone after create */
    return YOKE_OK;
}

static yoke_status check_buckets(const yoke_run *run) {
    const yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *rows = &run->training.info;
    int buckets = options->length_buckets;
    if (buckets < 0 || buckets > YOKE_LENGTH_BUCKETS_LIMIT)
        return FAIL(YOKE_ERROR_ARGUMENT, "length_buckets is %d: 0 to %d", buckets,
                    YOKE_LENGTH_BUCKETS_LIMIT);
    if (options->custom_model != NULL && buckets > 1)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "length_buckets with custom_model: give models of shorter rows in "
                    "engine->other_models");
    if (options->custom_model == NULL && run->engine.other_model_count > 0)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "engine->other_models belong to a custom_model; length_buckets makes those "
                    "of a preset");
    if (buckets > 1 &&
        (!rows->shape.flat || rows->label_count < 2 || rows->shape.channels < buckets))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "length_buckets is %d, and a row of %s is %dx%dx%d with %d labels: buckets are "
                    "for rows of at least as many tokens, with a label for each",
                    buckets, rows->name, rows->shape.channels, rows->shape.height,
                    rows->shape.width, rows->label_count);
    return YOKE_OK;
}

/* The models of shorter rows, the presets' or the host's, of which the list is kept. */
static yoke_status list_shorter(yoke_custom_parts *parts, yoke_run *run) {
    int built = run->options.length_buckets - 1, count = run->engine.other_model_count;
    if (built > 0) count = built;
    if (count <= 0) return YOKE_OK;
    parts->shorter_list = yoke_calloc((size_t)count, sizeof *parts->shorter_list);
    if (parts->shorter_list == NULL)
        return FAIL_MEMORY((size_t)count * sizeof *parts->shorter_list, "a list of models");
    for (int k = 0; k < count; k++)
        parts->shorter_list[k] = built > 0 ? parts->shorter[k] : run->engine.other_models[k];
    run->shorter = run->engine.other_models = parts->shorter_list;
    run->shorter_count = run->engine.other_model_count = count;
    return YOKE_OK;
}

static yoke_status reserve(float **rows, size_t count) {
    *rows = yoke_malloc(count * sizeof **rows);
    return *rows != NULL ? YOKE_OK : FAIL_MEMORY(count * sizeof **rows, "outputs on the host");
}

yoke_status yoke_custom_parts_open(yoke_custom_parts *parts, yoke_run *run) {
    TRY(check_buckets(run));
    TRY(open_model(parts, run));
    TRY(list_shorter(parts, run));
    bool custom_loss = run->options.custom_loss != NULL;
    bool tallies = run->options.misclassified > 0 && run->training.info.classes > 0;
    /* The host's loss sees all outputs and gives their gradients, others see the first output. */
    int outputs = parts->metrics.count > 0 || tallies ? 1 : 0;
    if (custom_loss) outputs = yoke_model_output_count(run->model);
    for (int k = 0; k < outputs; k++) {
        size_t count = (size_t)run->options.batch * yoke_model_output_elements(run->model, k);
        TRY(reserve(&parts->outputs.outputs[k], count));
        if (custom_loss) TRY(reserve(&parts->outputs.gradients[k], count));
    }
    return YOKE_OK;
}

void yoke_custom_parts_close(yoke_custom_parts *parts) {
    for (int k = 0; k < YOKE_OUTPUTS_LIMIT; k++) {
        yoke_free(parts->outputs.outputs[k]);
        yoke_free(parts->outputs.gradients[k]);
    }
    yoke_custom_metrics_close(&parts->metrics);
    yoke_free(parts->shorter_list);
    for (int k = 0; k < YOKE_LENGTH_BUCKETS_LIMIT; k++)
        yoke_model_destroy(parts->shorter[k]);
    yoke_model_destroy(parts->preset);
}
