/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "layer1.*:lr=0.1,decay=0;layer2.*:lr=0.5" and prints what it came to. */
#include "cli/parameter_groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static int add(group_list *list, const yoke_parameter_group *group) {
    if (list->count == CLI_GROUPS_MAX)
        return cli_usage_error("train",
                               "--freeze, --group and --no-decay make more than %d groups; join "
                               "patterns of equal settings with commas",
                               CLI_GROUPS_MAX);
    list->groups[list->count++] = *group;
    return -1;
}

/* What a written group sets; NaN: not set yet. */
typedef struct settings {
    double lr, decay, momentum, steps;
} settings;

static int read_setting(settings *read, const char *setting) {
    double *field = NULL;
    if (strncmp(setting, "lr=", 3) == 0) field = &read->lr;
    if (strncmp(setting, "decay=", 6) == 0) field = &read->decay;
    if (strncmp(setting, "momentum=", 9) == 0) field = &read->momentum;
    if (strncmp(setting, "steps=", 6) == 0) field = &read->steps;
    if (field == NULL)
        return cli_usage_error(
            "train", "--group: '%s' is neither lr=X nor decay=X, momentum=X or steps=N", setting);
    if (!isnan(*field))
        return cli_usage_error("train", "--group: '%s' is the second of its kind in a group",
                               setting);
    if (!yoke_text_real(strchr(setting, '=') + 1, 0, INFINITY, field))
        return cli_usage_error("train", "--group: '%s' needs a number of at least 0", setting);
    if (field == &read->momentum && !(*field > 0 && *field < 1))
        return cli_usage_error("train", "--group: '%s' needs a number above 0 and below 1",
                               setting);
    if (field == &read->steps && !(*field >= 1 && *field <= 1e15 && *field == floor(*field)))
        return cli_usage_error("train", "--group: '%s' needs a whole number of at least 1",
                               setting);
    return -1;
}

/* "PATTERNS:lr=X,decay=X,momentum=X,steps=N" */
static int add_written(group_list *list, char *written) {
    yoke_parameter_group group = YOKE_PARAMETER_GROUP_INIT;
    settings read = {NAN, NAN, NAN, NAN};
    char *colon = strchr(written, ':'), *rest = colon;
    if (colon == NULL || colon == written || colon[1] == '\0' || strchr(colon + 1, ':') != NULL)
        return cli_usage_error("train",
                               "--group: '%s' is not PATTERN[,...]:lr=X,decay=X; between two "
                               "groups stands ';'",
                               written);
    *rest++ = '\0';
    for (char *one; (one = strsep(&rest, ",")) != NULL;) {
        int code = read_setting(&read, one);
        if (code >= 0) return code;
    }
    group.pattern = written;
    if (!isnan(read.lr)) group.learning_rate_scale = read.lr;
    if (!isnan(read.decay)) group.weight_decay = read.decay;
    group.set_weight_decay = !isnan(read.decay);
    if (!isnan(read.momentum)) group.momentum = read.momentum;
    if (!isnan(read.steps)) group.steps = (uint64_t)read.steps;
    return add(list, &group);
}

static int add_all_written(group_list *list, const char *text) {
    char *rest = list->text = strdup(text);
    if (list->text == NULL) return cli_system_error("--group");
    for (char *one; (one = strsep(&rest, ";")) != NULL;) {
        int code = add_written(list, one);
        if (code >= 0) return code;
    }
    return -1;
}

/* Instead of a pattern: what has one dimension. */
#define NORMS_AND_BIASES "norms-and-biases"

int group_list_read(group_list *list, const group_flags *flags) {
    yoke_parameter_group frozen = YOKE_PARAMETER_GROUP_INIT, plain = YOKE_PARAMETER_GROUP_INIT;
    int code = -1;
    *list = (group_list){.count = 0};
    frozen.pattern = flags->freeze;
    frozen.frozen = true;
    plain.one_dimensional =
        flags->no_decay != NULL && strcmp(flags->no_decay, NORMS_AND_BIASES) == 0;
    plain.pattern = plain.one_dimensional ? "*" : flags->no_decay;
    plain.set_weight_decay = true;
    if (flags->freeze != NULL) code = add(list, &frozen);
    if (code < 0 && flags->group != NULL) code = add_all_written(list, flags->group);
    if (code < 0 && flags->no_decay != NULL) code = add(list, &plain);
    return code;
}

void group_list_free(group_list *list) {
    free(list->text);
}

void print_groups(FILE *out, yoke_trainer *trainer, const group_list *list) {
    for (int i = 0; i < list->count; i++) {
        const yoke_parameter_group *group = &list->groups[i];
        yoke_group_report report = {.struct_size = sizeof report};
        if (yoke_data_parallel_group(yoke_trainer_engine(trainer), i, &report) != YOKE_OK) continue;
        fprintf(out, "%s %s: %d tensor%s, %zu parameters", i == 0 ? "groups  " : "        ",
                group->one_dimensional ? NORMS_AND_BIASES : group->pattern, report.tensors,
                report.tensors == 1 ? "" : "s", report.elements);
        if (group->frozen) fprintf(out, ", frozen");
        if (group->learning_rate_scale != 1)
            fprintf(out, ", learning rate x %g", group->learning_rate_scale);
        if (group->set_weight_decay) fprintf(out, ", weight decay %g", group->weight_decay);
        if (group->momentum > 0) fprintf(out, ", momentum %g", group->momentum);
        if (group->steps > 0) fprintf(out, ", for %llu steps", (unsigned long long)group->steps);
        fputc('\n', out);
    }
}
