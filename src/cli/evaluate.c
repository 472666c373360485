/* yoke evaluate: loss and accuracy of saved weights on a dataset's test split. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/data_flags.h"
#include "cli/shared_options.h"

typedef struct evaluate_flags {
    const char *init, *model, *dataset, *devices;
    int threads, batch, precision;
    data_flags data;
    bool json;
} evaluate_flags;

#define AT(field) offsetof(evaluate_flags, field)

static const cli_option options[] = {
    {"init", "FILE", "safetensors file of the weights (required)", CLI_TEXT, AT(init), 0, 0},
    {"model", "NAME", "the model of the weights (resnet20)", CLI_TEXT, AT(model), 0, 0},
    {"dataset", "SPEC", "as in yoke train (synthetic)", CLI_TEXT, AT(dataset), 0, 0},
    {"devices", "LIST", "auto, cpu, 4xcpu, ... (auto)", CLI_TEXT, AT(devices), 0, 0},
    CLI_OPTION_THREADS(AT(threads)),
    CLI_OPTION_BATCH(AT(batch), "64"),
    CLI_OPTION_PRECISION(AT(precision)),
    CLI_OPTION_LIMIT_ROWS(AT(data.limit_rows)),
    CLI_OPTION_LOADER_THREADS(AT(data.loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(data.skip_bad)),
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb evaluate_verb = {.name = "evaluate",
                                .summary = "evaluate saved weights on test data",
                                .options = options,
                                .option_count = CLI_OPTION_COUNT(options)};

/* In the order in which open_all opens it. */
typedef struct evaluation {
    yoke_devices *devices;
    yoke_dataset *dataset;
    yoke_model *model;
    yoke_data_parallel *parallel;
    yoke_loader *loader;
    double loss; /* a sum until the end */
    long long rows, labels, correct;
} evaluation;

static yoke_status build_model(evaluation *run, const evaluate_flags *flags) {
    yoke_dataset_info info = {.struct_size = sizeof info};
    yoke_status status = yoke_dataset_describe(run->dataset, &info);
    if (status != YOKE_OK) return status;
    yoke_loss_options loss = {.struct_size = sizeof loss,
                              .kind = info.classes > 0 ? YOKE_LOSS_CROSS_ENTROPY : YOKE_LOSS_MSE};
    int outputs = info.classes > 0 ? info.classes : info.target_count;
    return yoke_model_preset(&run->model, flags->model, info.shape, outputs, &loss);
}

static yoke_status build_engine(evaluation *run, const evaluate_flags *flags) {
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = flags->batch,
                                  .threads = loader_threads_read(flags->data.loader_threads),
                                  .devices = run->devices};
    yoke_status status = yoke_loader_create(&run->loader, run->dataset, &loader);
    yoke_data_parallel_options engine = {.struct_size = sizeof engine,
                                         .precision = (yoke_precision)flags->precision,
                                         .batch = flags->batch,
                                         .pixels = yoke_loader_pixels(run->loader)};
    if (status == YOKE_OK)
        status = yoke_data_parallel_create(&run->parallel, run->model, run->devices, NULL, &engine);
    if (status == YOKE_OK) status = yoke_weights_load(run->parallel, run->model, flags->init);
    return status;
}

static yoke_status open_all(evaluation *run, const evaluate_flags *flags) {
    yoke_devices_options devices = {
        .struct_size = sizeof devices, .list = flags->devices, .threads = flags->threads};
    yoke_status status = yoke_devices_open(&run->devices, &devices);
    if (status == YOKE_OK)
        status = data_flags_open(&run->dataset, flags->dataset, YOKE_SPLIT_TEST, &flags->data);
    if (status == YOKE_OK) status = build_model(run, flags);
    if (status == YOKE_OK) status = build_engine(run, flags);
    return status;
}

static void close_all(evaluation *run) {
    yoke_loader_destroy(run->loader);
    yoke_data_parallel_destroy(run->parallel);
    yoke_model_destroy(run->model);
    yoke_dataset_close(run->dataset);
    yoke_devices_close(run->devices);
}

static yoke_status add_batches(evaluation *run) {
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_status status = yoke_loader_begin(run->loader, 0);
    while (status == YOKE_OK) {
        yoke_step_result result = {.struct_size = sizeof result};
        status = yoke_loader_next(run->loader, &batch, NULL);
        if (status != YOKE_OK || batch.rows == 0) break;
        status = yoke_data_parallel_evaluate(run->parallel, &batch, &result);
        run->loss += result.loss * result.rows;
        run->rows += result.rows;
        run->labels += result.labels;
        run->correct = result.correct < 0 ? -1 : run->correct + result.correct;
    }
    run->loss /= run->rows > 0 ? (double)run->rows : 1;
    return status;
}

static double accuracy(const evaluation *run) {
    return run->correct < 0 ? (double)NAN : (double)run->correct / (double)run->labels;
}

static yoke_status print_json(const evaluation *run, const evaluate_flags *flags) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", flags->model);
    yoke_json_text(&json, "dataset", flags->dataset);
    yoke_json_text(&json, "weights", flags->init);
    yoke_json_integer(&json, "devices", yoke_data_parallel_device_count(run->parallel));
    yoke_json_integer(&json, "rows", run->rows);
    yoke_json_real(&json, "loss", run->loss);
    yoke_json_real(&json, "accuracy", accuracy(run));
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

static void print_words(const evaluation *run, const evaluate_flags *flags) {
    printf("%s on %s: loss %.4f", flags->model, flags->dataset, run->loss);
    if (run->correct >= 0) printf(", accuracy %.2f %%", 100 * accuracy(run));
    printf(" over %lld rows\n", run->rows);
}

int evaluate_main(int argc, char **argv) {
    evaluate_flags flags = {
        .model = "resnet20", .dataset = "synthetic", .devices = "auto", .batch = 64};
    evaluation run = {0};
    int code = cli_parse(&evaluate_verb, argc, argv, &flags, NULL);
    if (code < 0) code = data_flags_check(&flags.data, "evaluate");
    if (code >= 0) return code;
    if (flags.init == NULL)
        return cli_usage_error("evaluate", "evaluate needs the weights: --init FILE");
    yoke_status status = open_all(&run, &flags);
    if (status == YOKE_OK) status = add_batches(&run);
    if (status == YOKE_OK && flags.json)
        status = print_json(&run, &flags);
    else if (status == YOKE_OK)
        print_words(&run, &flags);
    code = status == YOKE_OK ? 0 : cli_fail(status);
    close_all(&run);
    return code;
}
