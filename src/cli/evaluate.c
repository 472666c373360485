/* yoke evaluate: loss and accuracy of saved weights on a dataset's test split. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "cli.h"

typedef struct evaluate_flags {
    const char *init, *model, *dataset, *devices;
    int threads, batch, precision;
    bool json;
} evaluate_flags;

#define AT(field) offsetof(evaluate_flags, field)

static const cli_option options[] = {
    {"init", "FILE", "safetensors with the weights; required", CLI_TEXT, AT(init), 0, 0},
    {"model", "NAME", "the model they belong to (resnet20)", CLI_TEXT, AT(model), 0, 0},
    {"dataset", "SPEC", "cifar10:DIR, cifar100:DIR, mnist:DIR or synthetic[:...] (synthetic)",
     CLI_TEXT, AT(dataset), 0, 0},
    {"devices", "LIST", "auto, cpu, 4xcpu, ... (auto)", CLI_TEXT, AT(devices), 0, 0},
    {"threads", "N", "compute threads of each device (cores / devices)", CLI_INTEGER, AT(threads),
     0, 1024},
    {"batch", "N", "rows computed at a time, over all devices (64)", CLI_INTEGER, AT(batch), 1,
     1 << 20},
    {"precision", "float32|bfloat16|tf32", "of the computation (float32)", CLI_CHOICE,
     AT(precision), 0, 0},
    {"json", NULL, "print the result as one JSON object", CLI_FLAG, AT(json), 0, 0},
};

const cli_verb evaluate_verb = {.name = "evaluate",
                                .summary = "measure saved weights on test data",
                                .options = options,
                                .option_count = CLI_OPTION_COUNT(options)};

/* What an evaluation needs, in the order in which it is opened. */
typedef struct evaluation {
    yoke_devices *devices;
    yoke_dataset *dataset;
    yoke_model *model;
    yoke_data_parallel *parallel;
    yoke_loader *loader;
    double loss; /* a sum until the end */
    long long rows, correct;
} evaluation;

static yoke_status build_model(evaluation *it, const evaluate_flags *flags) {
    yoke_dataset_info info = {.struct_size = sizeof info};
    yoke_status status = yoke_dataset_describe(it->dataset, &info);
    if (status != YOKE_OK) return status;
    yoke_loss_options loss = {.struct_size = sizeof loss,
                              .kind = info.classes > 0 ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE};
    int outputs = info.classes > 0 ? info.classes : info.target_count;
    return yoke_model_preset(&it->model, flags->model, info.shape, outputs, &loss);
}

static yoke_status build_engine(evaluation *it, const evaluate_flags *flags) {
    yoke_loader_options loader = {
        .struct_size = sizeof loader, .batch = flags->batch, .devices = it->devices};
    yoke_status status = yoke_loader_create(&it->loader, it->dataset, &loader);
    yoke_data_parallel_options engine = {.struct_size = sizeof engine,
                                         .precision = (yoke_precision)flags->precision,
                                         .batch = flags->batch,
                                         .pixels = yoke_loader_pixels(it->loader)};
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&it->parallel, it->model, it->devices, NULL, &engine);
    if (status == YOKE_OK) status = yoke_weights_load(it->parallel, it->model, flags->init);
    return status;
}

static yoke_status open_all(evaluation *it, const evaluate_flags *flags) {
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = flags->devices, .threads = flags->threads};
    yoke_status status = yoke_devices_open(&it->devices, &devices);
    if (status == YOKE_OK)
        status = yoke_dataset_open(&it->dataset, flags->dataset, YOKE_SPLIT_TEST);
    if (status == YOKE_OK) status = build_model(it, flags);
    if (status == YOKE_OK) status = build_engine(it, flags);
    return status;
}

static void close_all(evaluation *it) {
    yoke_loader_destroy(it->loader);
    yoke_data_parallel_destroy(it->parallel);
    yoke_model_destroy(it->model);
    yoke_dataset_close(it->dataset);
    yoke_devices_close(it->devices);
}

static yoke_status add_batches(evaluation *it) {
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_status status = yoke_loader_begin(it->loader, 0);
    while (status == YOKE_OK) {
        yoke_step_result result = {.struct_size = sizeof result};
        status = yoke_loader_next(it->loader, &batch, NULL);
        if (status != YOKE_OK || batch.rows == 0) break;
        status = yoke_data_parallel_evaluate(it->parallel, &batch, &result);
        it->loss += result.loss * result.rows;
        it->rows += result.rows;
        it->correct = result.correct < 0 ? -1 : it->correct + result.correct;
    }
    it->loss /= it->rows > 0 ? (double)it->rows : 1;
    return status;
}

static double accuracy(const evaluation *it) {
    return it->correct < 0 ? (double)NAN : (double)it->correct / (double)it->rows;
}

static void print_json(const evaluation *it, const evaluate_flags *flags) {
    emit json;
    emit_begin(&json, stdout);
    emit_open(&json, NULL, '{');
    emit_text(&json, "model", flags->model);
    emit_text(&json, "dataset", flags->dataset);
    emit_text(&json, "weights", flags->init);
    emit_integer(&json, "devices", yoke_data_parallel_device_count(it->parallel));
    emit_integer(&json, "rows", it->rows);
    emit_real(&json, "loss", it->loss);
    emit_real(&json, "accuracy", accuracy(it));
    emit_close(&json, '}');
    emit_end(&json);
}

static void print_words(const evaluation *it, const evaluate_flags *flags) {
    printf("%s on %s: loss %.4f", flags->model, flags->dataset, it->loss);
    if (it->correct >= 0) printf(", accuracy %.2f %%", 100 * accuracy(it));
    printf(" over %lld rows\n", it->rows);
}

int evaluate_main(int argc, char **argv) {
    evaluate_flags flags = {
        .model = "resnet20", .dataset = "synthetic", .devices = "auto", .batch = 64};
    evaluation it = {0};
    int code = cli_parse(&evaluate_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    if (flags.init == NULL)
        return cli_usage_error("evaluate", "evaluate needs --init FILE, the weights to measure");
    yoke_status status = open_all(&it, &flags);
    if (status == YOKE_OK) status = add_batches(&it);
    if (status != YOKE_OK)
        code = cli_fail(status);
    else if (flags.json)
        print_json(&it, &flags);
    else
        print_words(&it, &flags);
    close_all(&it);
    return status == YOKE_OK ? 0 : code;
}
