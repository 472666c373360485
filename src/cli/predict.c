/* SPDX-License-Identifier: Apache-2.0 */
/* yoke predict: what saved weights say of photographs, or of a dataset's rows. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/predict_print.h"
#include "cli/shared_options.h"
#include "cli/trained.h"

#define DECODERS 8 /* threads that read photographs, at most */

typedef struct predict_flags {
    trained_flags trained;
    int top;
    bool json, csv;
} predict_flags;

#define AT(field) CLI_FIELD(predict_flags, field)

static const cli_option options[] = {
    TRAINED_OPTION_WEIGHTS(AT(trained.weights)),
    TRAINED_OPTION_MODEL(AT(trained.model)),
    {"top-k", "K", "classes to print for each row, the most probable first (1)", AT(top), 1,
     1000000},
    TRAINED_OPTION_DEVICES(AT(trained.devices)),
    CLI_OPTION_THREADS(AT(trained.threads)),
    CLI_OPTION_BATCH(AT(trained.batch), "64, or all rows if they are fewer"),
    CLI_OPTION_PRECISION(AT(trained.precision)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(trained.algorithm_cache.no_cache)),
    CLI_OPTION_LIMIT_ROWS(AT(trained.rows.limit)),
    CLI_OPTION_LOADER_THREADS(AT(trained.rows.loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(trained.rows.skip_bad)),
    {"csv", NULL, "print name,rank,class,index,probability", AT(csv)},
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb predict_verb = {
    .name = "predict",
    .operands = "IMAGE... | SPEC",
    .summary = "say what saved weights make of images, or of rows of a dataset",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "IMAGE: JPEG and PNG files, resized and cropped as the weights were trained. SPEC: the "
            "test rows of a dataset, as in yoke train.\n"
            "A file that is no image is named on stderr, the others are predicted, and the exit "
            "code is that of the first failure.\n"};

typedef struct prediction {
    const predict_flags *flags;
    char *const *paths; /* of photographs */
    int count;
    int batch;
    trained trained;
    yoke_dataset *dataset; /* of a SPEC */
    yoke_loader *loader;
    predict_printer printer;
    size_t row_values, output_values; /* of one row */
    float *inputs, *outputs;          /* [batch] rows */
    yoke_error *errors;               /* [batch] of photographs */
    yoke_workers *decoders;
    yoke_status first;                   /* the first photograph's that failed */
    size_t not_finite, first_not_finite; /* rows of a SPEC with such inputs; which is the first */
} prediction;

static yoke_status open_printer(prediction *run) {
    const predict_flags *flags = run->flags;
    int classes = run->trained.info.classes;
    if (yoke_model_output_shape(run->trained.model).sequence)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "%s: %s predicts a class at each position, not one of a row; yoke "
                          "generate continues a text with it",
                          flags->trained.weights, run->trained.info.model);
    run->printer = (predict_printer){.of = &run->trained,
                                     .format = flags->json  ? PREDICT_JSON
                                               : flags->csv ? PREDICT_CSV
                                                            : PREDICT_TEXT,
                                     .top = flags->top < classes ? flags->top : classes};
    run->output_values = (size_t)(classes > 0 ? classes : run->trained.info.target_count);
    run->outputs = malloc((size_t)run->batch * run->output_values * sizeof *run->outputs);
    if (run->outputs == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for predictions");
    predict_print_begin(&run->printer, flags->trained.weights);
    return YOKE_OK;
}

static yoke_status forward(prediction *run, const yoke_batch *batch) {
    return yoke_data_parallel_forward(run->trained.parallel, batch, false, run->outputs);
}

static const float *outputs_of(const prediction *run, int row) {
    return run->outputs + (size_t)row * run->output_values;
}

/* Rows of a dataset. */

static yoke_status open_rows(prediction *run, const char *spec) {
    trained *own = &run->trained;
    yoke_dataset_info rows = {.struct_size = sizeof rows};
    TRY(trained_dataset(own, spec, &run->flags->trained.rows, &run->dataset));
    TRY(yoke_dataset_describe(run->dataset, &rows));
    if (rows.rows < (size_t)run->batch) run->batch = (int)rows.rows;
    TRY(trained_model(own, &run->flags->trained, run->batch));
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = run->batch,
                                  .threads = run->flags->trained.rows.loader_threads.count,
                                  .devices = own->devices};
    TRY(yoke_loader_create(&run->loader, run->dataset, &loader));
    TRY(yoke_loader_select_inputs(run->loader, own->model));
    return trained_build(own, &run->flags->trained, run->batch, yoke_loader_pixels(run->loader));
}

/* NaN and infinity pass through a network, or vanish in its ReLU: nothing else would say so. */
static void count_not_finite(prediction *run, const yoke_batch *batch, size_t first) {
    size_t values = batch->inputs_count / (size_t)batch->rows;
    for (size_t row = 0; row < (size_t)batch->rows; row++) {
        size_t i = 0;
        while (i < values && isfinite(batch->inputs[row * values + i]))
            i++;
        if (i == values) continue;
        if (run->not_finite++ == 0) run->first_not_finite = first + row;
    }
}

static yoke_status predict_rows(prediction *run, const char *spec) {
    yoke_batch batch = {.struct_size = sizeof batch};
    TRY(open_rows(run, spec));
    TRY(open_printer(run));
    TRY(yoke_loader_begin(run->loader, 0));
    for (size_t first = 0;; first += (size_t)batch.rows) {
        TRY(yoke_loader_next(run->loader, &batch, NULL));
        if (batch.rows == 0) break;
        count_not_finite(run, &batch, first);
        batch.labels = NULL; /* they may be of other classes than the weights' */
        batch.labels_count = 0;
        batch.targets = NULL;
        batch.targets_count = 0;
        TRY(forward(run, &batch));
        for (int i = 0; i < batch.rows; i++) {
            char number[32];
            const char *name = yoke_dataset_row_name(run->dataset, first + (size_t)i);
            snprintf(number, sizeof number, "%zu", first + (size_t)i);
            TRY(predict_print_row(&run->printer, name != NULL ? name : number, outputs_of(run, i)));
        }
    }
    if (run->not_finite > 0)
        fprintf(stderr, "yoke: warning: %s: values of %zu rows are not finite, of row %zu first\n",
                spec, run->not_finite, run->first_not_finite);
    return YOKE_OK;
}

/* Photographs. */

typedef struct decoding {
    prediction *run;
    int first, count, threads;
} decoding;

static yoke_status decode_some(int worker, void *context) {
    const decoding *job = context;
    const yoke_weights_info *info = &job->run->trained.info;
    yoke_image_options how = {.struct_size = sizeof how,
                              .shape = info->input,
                              .resize = info->resize,
                              .exact = info->exact};
    memcpy(how.mean, info->mean, sizeof how.mean);
    memcpy(how.std, info->std, sizeof how.std);
    for (int i = worker; i < job->count; i += job->threads) {
        float *inputs = job->run->inputs + (size_t)i * job->run->row_values;
        yoke_status status = yoke_image_read(job->run->paths[job->first + i], &how, inputs);
        job->run->errors[i] = yoke_error_take(status);
    }
    return YOKE_OK;
}

static int decoder_count(const prediction *run) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int most = cores > DECODERS ? DECODERS : cores > 0 ? (int)cores : 1;
    return run->batch < most ? run->batch : most;
}

static yoke_status open_photographs(prediction *run) {
    const yoke_shape *shape = &run->trained.info.input;
    if (run->count < run->batch) run->batch = run->count;
    yoke_workers_options workers = {.count = decoder_count(run), .spare_cores = -1};
    size_t rows = (size_t)run->batch;
    TRY(trained_model(&run->trained, &run->flags->trained, run->batch));
    run->row_values = (size_t)shape->channels * (size_t)shape->height * (size_t)shape->width;
    run->inputs = malloc(rows * run->row_values * sizeof *run->inputs);
    run->errors = malloc(rows * sizeof *run->errors);
    if (run->inputs == NULL || run->errors == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %zu photographs", rows);
    TRY(yoke_workers_create(&run->decoders, &workers));
    return trained_build(&run->trained, &run->flags->trained, run->batch, false);
}

/* The rows that could be read move together; returns their number. */
static int keep_read(prediction *run, int count) {
    int kept = 0;
    for (int i = 0; i < count; i++) {
        if (run->errors[i].status != YOKE_OK) continue;
        if (kept < i)
            memcpy(run->inputs + (size_t)kept * run->row_values,
                   run->inputs + (size_t)i * run->row_values,
                   run->row_values * sizeof *run->inputs);
        kept++;
    }
    return kept;
}

static yoke_status print_photographs(prediction *run, int first, int count) {
    for (int i = 0, kept = 0; i < count; i++) {
        const yoke_error *error = &run->errors[i];
        if (error->status == YOKE_OK) {
            TRY(predict_print_row(&run->printer, run->paths[first + i], outputs_of(run, kept++)));
            continue;
        }
        fprintf(stderr, "yoke: %s\n", error->text);
        if (run->first == YOKE_OK) run->first = error->status;
    }
    return YOKE_OK;
}

static yoke_status predict_photographs(prediction *run) {
    const yoke_shape *row = &run->trained.info.input;
    TRY(trained_guess(&run->trained, &run->flags->trained));
    if (row->flat || row->sequence)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "'%s' would be a photograph, but the weights read rows of %d features: "
                          "name a dataset, as in csv:FILE,label=COLUMN",
                          run->paths[0], row->channels);
    TRY(open_photographs(run));
    TRY(open_printer(run));
    for (int first = 0; first < run->count; first += run->batch) {
        decoding job = {.run = run, .first = first, .threads = decoder_count(run)};
        job.count = run->count - first < run->batch ? run->count - first : run->batch;
        TRY(yoke_workers_run(run->decoders, job.threads, decode_some, &job, NULL));
        yoke_batch batch = {
            .struct_size = sizeof batch, .rows = keep_read(run, job.count), .inputs = run->inputs};
        if (batch.rows > 0) TRY(forward(run, &batch));
        TRY(print_photographs(run, first, job.count));
    }
    return YOKE_OK;
}

/* A single operand that is no file may be a SPEC. */
static bool is_spec(char *const *operands, int count) {
    return count == 1 && access(operands[0], F_OK) != 0 &&
           (strchr(operands[0], ':') != NULL || strcmp(operands[0], "synthetic") == 0);
}

static yoke_status predict(prediction *run) {
    TRY(trained_open(&run->trained, &run->flags->trained));
    yoke_status status = is_spec(run->paths, run->count) ? predict_rows(run, run->paths[0])
                                                         : predict_photographs(run);
    bool begun = run->outputs != NULL; /* JSON is one object, also of what came before a failure */
    yoke_status printed = begun ? predict_print_end(&run->printer) : YOKE_OK;
    return status != YOKE_OK ? status : printed;
}

int predict_main(int argc, char **argv) {
    predict_flags flags = {.trained = {.devices = "auto", .batch = 64}, .top = 1};
    prediction run = {.flags = &flags, .paths = argv + 1};
    int code = cli_parse(&predict_verb, argc, argv, &flags, &run.count);
    if (code >= 0) return code;
    if (flags.trained.weights == NULL)
        return cli_usage_error("predict", "predict needs the weights: --weights FILE");
    if (run.count == 0)
        return cli_usage_error("predict", "predict needs images or a dataset: photo.jpg, "
                                          "images:DIR, cifar10:DIR");
    if (flags.json && flags.csv)
        return cli_usage_error("predict", "--json and --csv are two formats; leave one out");
    run.batch = flags.trained.batch;
    yoke_status status = predict(&run);
    code = status == YOKE_OK ? yoke_status_exit_code(run.first) : cli_fail(status);
    yoke_workers_destroy(run.decoders);
    free(run.errors);
    free(run.inputs);
    free(run.outputs);
    yoke_loader_destroy(run.loader);
    trained_close(&run.trained);
    yoke_dataset_close(run.dataset);
    return code;
}
