/* SPDX-License-Identifier: Apache-2.0 */
/* yoke data inspect: what a dataset holds, and which of its files cannot be read. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/data_survey.h"
#include "cli/shared_options.h"
#include "pictures/pictures.h"

#define LINES_SHOWN 40 /* of classes and of channels */

typedef struct inspect_flags {
    dataset_rows rows;
    const char *sheet;
    bool json;
} inspect_flags;

#define AT(field) CLI_FIELD(inspect_flags, field)

static const cli_option options[] = {
    {"sheet", "FILE", "write a contact sheet of training images, a row for each class, as PNG",
     AT(sheet)},
    CLI_OPTION_LIMIT_ROWS(AT(rows.limit)),
    CLI_OPTION_LOADER_THREADS(AT(rows.loader_threads)),
    CLI_OPTION_JSON(AT(json)),
};

const cli_verb data_verb = {
    .name = "data",
    .operands = "inspect SPEC",
    .summary = "look at a dataset before training on it",
    .options = options,
    .option_count = CLI_OPTION_COUNT(options),
    .more = "Reads every row of both splits: rows, shape, classes with their numbers, mean and\n"
            "std of each channel (pixels count from 0 to 1), and the name of every file that\n"
            "cannot be read (exit code 65). SPEC is as in --dataset of 'yoke train'.\n"};

static const char *const split_names[] = {"train", "test"};

/* "inputs    input 64, source_length 1"; nothing for rows of one input. */
static void print_inputs(const data_survey *training) {
    yoke_value_info input = {.struct_size = sizeof input};
    for (int i = 0; training->info.input_count > 1 && i < training->info.input_count; i++) {
        if (yoke_dataset_describe_input(training->dataset, i, &input) != YOKE_OK) return;
        printf("%s%s ", i == 0 ? "inputs    " : ", ", input.name);
        if (input.shape.flat)
            printf("%d", input.shape.channels);
        else
            printf("%dx%dx%d", input.shape.channels, input.shape.height, input.shape.width);
    }
    if (training->info.input_count > 1) putchar('\n');
}

static void print_rows(const data_survey surveys[2]) {
    const yoke_dataset_info *info = &surveys[0].info;
    printf("%-9s %zu training, %zu test, each ", "rows", surveys[0].info.rows,
           surveys[1].info.rows);
    if (info->label_count > 1) {
        printf("%d tokens of %d\n", info->label_count, info->classes);
        return;
    }
    if (info->shape.flat)
        printf("%d feature%s", info->shape.channels, info->shape.channels == 1 ? "" : "s");
    else
        printf("%dx%dx%d", info->shape.channels, info->shape.height, info->shape.width);
    if (info->classes > 0)
        printf(" and one of %d classes\n", info->classes);
    else
        printf(" and %d target%s\n", info->target_count, info->target_count == 1 ? "" : "s");
    size_t bad = surveys[0].bad_count + surveys[1].bad_count;
    if (bad > 0)
        printf("%-9s %zu of %zu files cannot be read\n", "bad", bad,
               bad + surveys[0].info.rows + surveys[1].info.rows);
}

static void print_rest(int count) {
    if (count > LINES_SHOWN) printf("... and %d more; --json has all\n", count - LINES_SHOWN);
}

static void print_classes(const data_survey surveys[2]) {
    const yoke_dataset_info *info = &surveys[0].info;
    if (info->classes == 0) return;
    printf("\n%-24s  %10s  %10s\n", "class", "training", "test");
    for (int i = 0; i < info->classes && i < LINES_SHOWN; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        cli_print_text(stdout, info->class_names != NULL ? info->class_names[i] : number, 24);
        printf("  %10zu  %10zu\n", surveys[0].class_rows[i], surveys[1].class_rows[i]);
    }
    print_rest(info->classes);
}

static void print_sums(const char *name, int index, const data_sums *sums) {
    char number[16];
    snprintf(number, sizeof number, "%d", index);
    cli_print_text(stdout, name != NULL ? name : number, 24);
    printf("  %10.4g  %10.4g", data_mean(sums), data_std(sums));
    if (sums->not_finite > 0) printf("  %zu not finite", sums->not_finite);
    putchar('\n');
}

static void print_channels(const data_survey *training) {
    const yoke_dataset_info *info = &training->info;
    if (info->label_count > 1) return; /* tokens have no mean */
    printf("\n%-24s  %10s  %10s\n", info->shape.flat ? "feature" : "channel", "mean", "std");
    for (int i = 0; i < info->shape.channels && i < LINES_SHOWN; i++)
        print_sums(info->feature_names != NULL ? info->feature_names[i] : NULL, i,
                   &training->channels[i]);
    print_rest(info->shape.channels);
    if (info->target_count > 0) printf("\n%-24s  %10s  %10s\n", "target", "mean", "std");
    for (int i = 0; i < info->target_count && i < LINES_SHOWN; i++)
        print_sums(NULL, i, &training->targets[i]);
    print_rest(info->target_count);
}

static void print_words(const data_survey surveys[2]) {
    print_rows(surveys);
    print_inputs(&surveys[0]);
    print_classes(surveys);
    print_channels(&surveys[0]);
    if (surveys[0].bad_count + surveys[1].bad_count > 0) printf("\nfiles that cannot be read\n");
    for (int split = 0; split < 2; split++)
        for (size_t i = 0; i < surveys[split].bad_count; i++) {
            cli_print_text(stdout, surveys[split].bad[i], 0);
            putchar('\n');
        }
}

static void write_sums(yoke_json *json, const char *key, const data_sums *sums, int count,
                       const char *const *names) {
    yoke_json_open(json, key, '[');
    for (int i = 0; i < count; i++) {
        yoke_json_open(json, NULL, '{');
        if (names != NULL) yoke_json_text(json, "name", names[i]);
        yoke_json_real(json, "mean", data_mean(&sums[i]));
        yoke_json_real(json, "std", data_std(&sums[i]));
        yoke_json_integer(json, "not_finite", (int64_t)sums[i].not_finite);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void write_inputs(yoke_json *json, const data_survey *training) {
    yoke_value_info input = {.struct_size = sizeof input};
    yoke_json_open(json, "inputs", '[');
    for (int i = 0; i < training->info.input_count; i++) {
        if (yoke_dataset_describe_input(training->dataset, i, &input) != YOKE_OK) break;
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "name", input.name);
        yoke_json_integer(json, "values", (int64_t)input.row_count);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static void write_split(yoke_json *json, const char *key, const data_survey *survey) {
    const yoke_dataset_info *info = &survey->info;
    yoke_json_open(json, key, '{');
    yoke_json_integer(json, "rows", (int64_t)info->rows);
    yoke_json_open(json, "class_rows", '[');
    for (int i = 0; i < info->classes; i++)
        yoke_json_integer(json, NULL, (int64_t)survey->class_rows[i]);
    yoke_json_close(json, ']');
    write_sums(json, "channels", survey->channels, info->shape.channels, info->feature_names);
    write_sums(json, "targets", survey->targets, info->target_count, NULL);
    yoke_json_open(json, "unreadable", '[');
    for (size_t i = 0; i < survey->bad_count; i++)
        yoke_json_text(json, NULL, survey->bad[i]);
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
}

static yoke_status print_json(const char *spec, const data_survey surveys[2]) {
    const yoke_dataset_info *info = &surveys[0].info;
    const int extents[] = {info->shape.channels, info->shape.height, info->shape.width};
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "dataset", spec);
    yoke_json_open(&json, "shape", '[');
    for (int i = 0; i < 3; i++)
        yoke_json_integer(&json, NULL, extents[i]);
    yoke_json_close(&json, ']');
    yoke_json_integer(&json, "classes", info->classes);
    yoke_json_integer(&json, "targets", info->target_count);
    yoke_json_open(&json, "class_names", '[');
    for (int i = 0; info->class_names != NULL && i < info->classes; i++)
        yoke_json_text(&json, NULL, info->class_names[i]);
    yoke_json_close(&json, ']');
    write_inputs(&json, &surveys[0]);
    for (int split = 0; split < 2; split++)
        write_split(&json, split_names[split], &surveys[split]);
    yoke_json_close(&json, '}');
    return cli_print_json(&json, stdout);
}

static yoke_status write_sheet(const data_survey *training, const char *path) {
    const yoke_dataset_info *info = &training->info;
    if (!training->with_pictures)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--sheet needs images: the rows have no height and width");
    int lines = info->classes > 0 && info->classes < SHEET_LINES ? info->classes : SHEET_LINES;
    if (info->classes == 0) lines = SHEET_COLUMNS;
    yoke_contact_sheet sheet = {.pictures = (const uint8_t *const *)training->pictures,
                                .count = lines * SHEET_COLUMNS,
                                .columns = SHEET_COLUMNS,
                                .channels = info->shape.channels,
                                .height = info->shape.height,
                                .width = info->shape.width};
    yoke_status status = yoke_contact_sheet_write(&sheet, path);
    if (status == YOKE_OK) fprintf(stderr, "wrote %s\n", path);
    return status;
}

static int inspect(const char *spec, const inspect_flags *flags) {
    data_survey surveys[2] = {{.with_pictures = flags->sheet != NULL}, {0}};
    yoke_status status = yoke_file_check(flags->sheet);
    if (status == YOKE_OK)
        status = data_survey_take(&surveys[0], spec, YOKE_SPLIT_TRAIN, &flags->rows);
    if (status == YOKE_OK)
        status = data_survey_take(&surveys[1], spec, YOKE_SPLIT_TEST, &flags->rows);
    if (status == YOKE_OK && flags->json)
        status = print_json(spec, surveys);
    else if (status == YOKE_OK)
        print_words(surveys);
    if (status == YOKE_OK && flags->sheet != NULL) status = write_sheet(&surveys[0], flags->sheet);
    size_t bad = surveys[0].bad_count + surveys[1].bad_count;
    if (status == YOKE_OK && bad > 0)
        status = cli_refuse(YOKE_ERROR_DATA,
                            "%zu file%s cannot be read; yoke train --skip-bad goes on without", bad,
                            bad == 1 ? "" : "s");
    int code = status == YOKE_OK ? 0 : cli_fail(status);
    data_survey_clear(&surveys[1]);
    data_survey_clear(&surveys[0]);
    return code;
}

int data_main(int argc, char **argv) {
    inspect_flags flags = {0};
    int operands = 0, code = cli_parse(&data_verb, argc, argv, &flags, &operands);
    if (code >= 0) return code;
    if (operands != 2 || strcmp(argv[1], "inspect") != 0)
        return cli_usage_error("data", "data takes %s", data_verb.operands);
    return inspect(argv[2], &flags);
}
