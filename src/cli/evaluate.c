/* SPDX-License-Identifier: Apache-2.0 */
/* yoke evaluate: how well saved weights know a dataset's test split. */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/shared_options.h"
#include "cli/trained.h"

typedef struct evaluate_flags {
    trained_flags trained;
    const char *dataset;
    bool confusion, json;
} evaluate_flags;

#define WHY_BYTES 96
#define COLUMN_MAX 12 /* bytes of a class's name above its column of the confusion table */
#define AT(field) CLI_FIELD(evaluate_flags, field)

static const cli_option options[] = {
    TRAINED_OPTION_WEIGHTS(AT(trained.weights)),
    {"init", "FILE", "another name of --weights", AT(trained.weights)},
    TRAINED_OPTION_MODEL(AT(trained.model)),
    {"dataset", "SPEC",
     "as in yoke train; sizes are those of the weights (synthetic, for weights of it)",
     AT(dataset)},
    {"confusion", NULL, "also print how often each class was taken for each other", AT(confusion)},
    TRAINED_OPTION_DEVICES(AT(trained.devices)),
    CLI_OPTION_THREADS(AT(trained.threads)),
    CLI_OPTION_BATCH(AT(trained.batch), "64"),
    CLI_OPTION_PRECISION(AT(trained.precision)),
    ALGORITHM_CACHE_OPTION_NO_CACHE(AT(trained.algorithm_cache.no_cache)),
    CLI_OPTION_LIMIT_ROWS(AT(trained.rows.limit)),
    CLI_OPTION_LOADER_THREADS(AT(trained.rows.loader_threads)),
    CLI_OPTION_SKIP_BAD(AT(trained.rows.skip_bad)),
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb evaluate_verb = {
    .name = "evaluate",
    .summary = "evaluate saved weights on test data",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "Weights that yoke train saved say which model, input and classes they are of.\n"
            "Precision: of the rows taken for a class, the share that is of it. Recall: of the "
            "rows of a class, the share taken for it.\n"};

typedef struct evaluation {
    trained trained;
    const char *spec;
    yoke_dataset *dataset;
    yoke_loader *loader;
    yoke_evaluation *result;
    yoke_evaluation_info info;
} evaluation;

/* Labels mean the classes of the dataset, outputs those of the weights; the loss reads as many
 * targets as there are outputs. */
static yoke_status check_classes(const yoke_weights_info *own, const yoke_dataset_info *rows,
                                 const char *spec) {
    if (rows->classes == 0 && rows->target_count == 0)
        return cli_refuse(
            YOKE_ERROR_ARGUMENT,
            "%s names no labels to compare with: write label=COLUMN or target=COLUMN of a "
            "table, npy:X.npy,Y.npy or y=NAME of arrays",
            spec);
    if (own->classes != rows->classes)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "%s has %d classes, the weights have %d", spec,
                          rows->classes, own->classes);
    if (own->target_count != rows->target_count)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "%s has %d targets a row, the weights have %d", spec,
                          rows->target_count, own->target_count);
    for (int i = 0; own->class_names != NULL && rows->class_names != NULL && i < own->classes; i++)
        if (!trained_is_name(own->class_names[i], rows->class_names[i]))
            return cli_refuse(YOKE_ERROR_ARGUMENT, "class %d of %s is '%s', of the weights '%s'", i,
                              spec, rows->class_names[i], own->class_names[i]);
    return YOKE_OK;
}

/* What can be drawn needs no name. */
static yoke_status choose_dataset(evaluation *run, const evaluate_flags *flags) {
    const char *of = run->trained.info.dataset;
    run->spec = flags->dataset != NULL ? flags->dataset : "synthetic";
    if (flags->dataset != NULL || of == NULL || strcmp(of, "synthetic") == 0) return YOKE_OK;
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "%s was trained on %s: name the rows to evaluate with --dataset SPEC",
                      flags->trained.weights, of);
}

static yoke_status open_all(evaluation *run, const evaluate_flags *flags) {
    trained *own = &run->trained;
    yoke_dataset_info rows = {.struct_size = sizeof rows};
    TRY(trained_open(own, &flags->trained));
    TRY(choose_dataset(run, flags));
    TRY(trained_dataset(own, run->spec, &flags->trained.rows, &run->dataset));
    TRY(yoke_dataset_describe(run->dataset, &rows));
    TRY(check_classes(&own->info, &rows, run->spec));
    TRY(trained_model(own, &flags->trained, flags->trained.batch));
    yoke_loader_options loader = {.struct_size = sizeof loader,
                                  .batch = flags->trained.batch,
                                  .threads = flags->trained.rows.loader_threads.count,
                                  .devices = own->devices};
    TRY(yoke_loader_create(&run->loader, run->dataset, &loader));
    TRY(yoke_loader_select_inputs(run->loader, own->model));
    return trained_build(own, &flags->trained, flags->trained.batch,
                         yoke_loader_pixels(run->loader));
}

static yoke_status evaluate_dataset(evaluation *run, const evaluate_flags *flags) {
    TRY(open_all(run, flags));
    TRY(yoke_evaluation_run(&run->result, run->trained.parallel, run->loader));
    run->info.struct_size = sizeof run->info;
    TRY(yoke_evaluation_describe(run->result, &run->info));
    if (run->info.not_finite > 0)
        fprintf(stderr, "yoke: warning: %s: values of %zu rows are not finite, of row %zu first\n",
                run->spec, run->info.not_finite, run->info.first_not_finite);
    return YOKE_OK;
}

/* Classes. */

typedef struct class_result {
    int64_t right, rows, taken; /* rows: of this class; taken: rows taken for it */
} class_result;

static int64_t count_of(const yoke_evaluation_info *info, int label, int predicted) {
    return info->counts[(size_t)label * (size_t)info->classes + (size_t)predicted];
}

static class_result result_of(const yoke_evaluation_info *info, int index) {
    class_result result = {.right = count_of(info, index, index)};
    for (int i = 0; i < info->classes; i++) {
        result.rows += count_of(info, index, i);
        result.taken += count_of(info, i, index);
    }
    return result;
}

/* NaN: of no rows. */
static double share(int64_t part, int64_t whole) {
    return whole > 0 ? (double)part / (double)whole : (double)NAN;
}

/* Many classes: their counts would fill the memory. */
static bool lacks_counts(const yoke_evaluation_info *info) {
    return info->tallied > 0 && info->counts == NULL;
}

static const char *say_why(const yoke_evaluation_info *info, char text[WHY_BYTES]) {
    snprintf(text, WHY_BYTES, "%d classes: counts by class are kept of up to %d", info->classes,
             YOKE_COUNTS_CLASSES);
    return text;
}

/* JSON. */

static void add_classes(yoke_json *json, const evaluation *run) {
    yoke_json_open(json, "per_class", '[');
    for (int i = 0; i < run->info.classes; i++) {
        class_result result = result_of(&run->info, i);
        char text[16];
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "class", trained_class(&run->trained, i, text));
        yoke_json_integer(json, "rows", result.rows);
        yoke_json_real(json, "precision", share(result.right, result.taken));
        yoke_json_real(json, "recall", share(result.right, result.rows));
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static yoke_status print_json(const evaluation *run, const evaluate_flags *flags) {
    const yoke_evaluation_info *info = &run->info;
    char why[WHY_BYTES];
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", run->trained.info.model);
    yoke_json_text(&json, "dataset", run->spec);
    yoke_json_text(&json, "weights", flags->trained.weights);
    yoke_json_integer(&json, "devices", yoke_data_parallel_device_count(run->trained.parallel));
    yoke_json_integer(&json, "rows", (int64_t)info->rows);
    yoke_json_real(&json, "loss", info->loss);
    yoke_json_real(&json, "accuracy", share(info->correct, info->labels));
    yoke_json_real(&json, "accuracy_top5", share(info->among_five, (int64_t)info->tallied));
    if (lacks_counts(info)) yoke_json_text(&json, "counts_left_out", say_why(info, why));
    if (info->counts != NULL) {
        add_classes(&json, run);
        yoke_json_open(&json, "confusion", '[');
        for (int i = 0; i < info->classes; i++) {
            yoke_json_open(&json, NULL, '[');
            for (int j = 0; j < info->classes; j++)
                yoke_json_integer(&json, NULL, count_of(info, i, j));
            yoke_json_close(&json, ']');
        }
        yoke_json_close(&json, ']');
    }
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

/* Words. */

static void print_share(int64_t part, int64_t whole) {
    if (whole > 0)
        printf("  %7.2f %%", 100 * share(part, whole));
    else
        printf("  %9s", "-");
}

static void print_classes(const evaluation *run) {
    printf("\n%-20s  %9s  %9s  %9s\n", "class", "rows", "precision", "recall");
    for (int i = 0; i < run->info.classes; i++) {
        class_result result = result_of(&run->info, i);
        char text[16];
        cli_print_text(stdout, trained_class(&run->trained, i, text), 20);
        printf("  %9lld", (long long)result.rows);
        print_share(result.right, result.taken);
        print_share(result.right, result.rows);
        printf("\n");
    }
}

/* The width of the confusion table's columns: that of the longest name; 0: a name is too long. */
static int column_width(const evaluation *run) {
    size_t width = 6;
    char text[16];
    for (int i = 0; i < run->info.classes; i++) {
        size_t bytes = strlen(trained_class(&run->trained, i, text));
        width = bytes > width ? bytes : width;
    }
    return width <= COLUMN_MAX ? (int)width : 0;
}

/* A line for each true class, a column for each predicted one, below its name. Where names are too
 * long for that, the numbers of the classes stand above the columns and before the names. */
static void print_confusion(const evaluation *run) {
    char text[16], line[64];
    int named = column_width(run), width = named > 0 ? named : 6;
    printf("\n%-20s", "true \\ predicted");
    for (int i = 0; i < run->info.classes; i++) {
        const char *name = trained_class(&run->trained, i, text);
        snprintf(line, sizeof line, "%d", i);
        name = named > 0 ? name : line;
        printf("%*s", 2 + width - (int)strlen(name), "");
        cli_print_text(stdout, name, 0);
    }
    printf("\n");
    for (int i = 0; i < run->info.classes; i++) {
        const char *name = trained_class(&run->trained, i, text);
        snprintf(line, sizeof line, "%d %s", i, name);
        cli_print_text(stdout, named > 0 ? name : line, 20);
        for (int j = 0; j < run->info.classes; j++)
            printf("  %*lld", width, (long long)count_of(&run->info, i, j));
        printf("\n");
    }
}

static void print_words(const evaluation *run, const evaluate_flags *flags) {
    const yoke_evaluation_info *info = &run->info;
    int64_t rows = (int64_t)info->rows;
    char why[WHY_BYTES];
    printf("%s on %s: loss %.4f", run->trained.info.model, run->spec, info->loss);
    if (info->classes > 0) printf(", accuracy %.2f %%", 100 * share(info->correct, info->labels));
    if (info->tallied > 0 && info->classes > 5)
        printf(", top-5 %.2f %%", 100 * share(info->among_five, (int64_t)info->tallied));
    printf(" over %lld rows\n", (long long)rows);
    if (lacks_counts(info)) printf("%s\n", say_why(info, why));
    if (info->counts == NULL) return;
    print_classes(run);
    if (flags->confusion) print_confusion(run);
}

int evaluate_main(int argc, char **argv) {
    evaluate_flags flags = {.trained = {.devices = "auto", .batch = 64}};
    evaluation run = {0};
    int code = cli_parse(&evaluate_verb, argc, argv, &flags, NULL);
    if (code >= 0) return code;
    if (flags.trained.weights == NULL)
        return cli_usage_error("evaluate",
                               "evaluate needs the weights: --weights FILE, or --init FILE");
    yoke_status status = evaluate_dataset(&run, &flags);
    if (status == YOKE_OK && flags.json)
        status = print_json(&run, &flags);
    else if (status == YOKE_OK)
        print_words(&run, &flags);
    code = status == YOKE_OK ? 0 : cli_fail(status);
    yoke_evaluation_destroy(run.result);
    yoke_loader_destroy(run.loader);
    trained_close(&run.trained);
    yoke_dataset_close(run.dataset);
    return code;
}
