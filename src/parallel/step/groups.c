/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the parameters of each group by name, and lists what the optimizer needs of them. */
#include "parallel/step/groups.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel/step/models.h"
#include "parallel/step/reach.h"

/* Options. */

/* Written so that NaN fails too. */
static yoke_status check_number(int group, const char *field, double value) {
    if (value >= 0 && isfinite(value)) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT, "groups[%d]: %s is %g: it must be 0 or more", group, field,
                value);
}

static yoke_status check_group(int index, const yoke_parameter_group *group) {
    if (group->pattern == NULL || group->pattern[0] == '\0')
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "groups[%d] has no pattern: set one, \"*.bias\" for example", index);
    TRY(check_number(index, "learning_rate_scale", group->learning_rate_scale));
    if (!(group->momentum >= 0 && group->momentum < 1))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "groups[%d]: momentum is %g: 0 <= momentum < 1 is required", index,
                    group->momentum);
    return check_number(index, "weight_decay", group->weight_decay);
}

yoke_status yoke_groups_load(yoke_groups *groups, const yoke_parameter_group *given, int count) {
    size_t stride = given->struct_size;
    groups->list = yoke_calloc((size_t)count, sizeof *groups->list);
    groups->patterns = yoke_calloc((size_t)count, sizeof *groups->patterns);
    if (groups->list == NULL || groups->patterns == NULL)
        return FAIL_MEMORY((size_t)count * sizeof *groups->list, "parameter groups");
    for (groups->count = 0; groups->count < count; groups->count++) {
        yoke_parameter_group *own = &groups->list[groups->count];
        const char *at = (const char *)given + (size_t)groups->count * stride;
        TRY(yoke_options_load(own, sizeof *own, at, "yoke_parameter_group"));
        TRY(check_group(groups->count, own));
        groups->patterns[groups->count] = yoke_strdup(own->pattern);
        if (groups->patterns[groups->count] == NULL)
            return FAIL_MEMORY(strlen(own->pattern) + 1, "a pattern");
        own->pattern = groups->patterns[groups->count];
    }
    return YOKE_OK;
}

/* Members. */

/* What groups choose from: the parameters, and those of one dimension. */
typedef struct candidates {
    const yoke_model *model;
    yoke_names parameters, vectors;
} candidates;

static yoke_status find_candidates(candidates *found, const yoke_model *model) {
    int tensors = yoke_model_tensor_count(model);
    found->model = model;
    TRY(yoke_names_create(&found->parameters, tensors));
    TRY(yoke_names_create(&found->vectors, tensors));
    for (int i = 0; i < tensors; i++) {
        yoke_tensor_info info = {.struct_size = sizeof info};
        TRY(yoke_model_tensor(model, i, &info));
        if (info.trainable) yoke_names_add(&found->parameters, info.name, i);
        if (info.trainable && info.ndim == 1) yoke_names_add(&found->vectors, info.name, i);
    }
    yoke_names_sort(&found->parameters);
    yoke_names_sort(&found->vectors);
    return YOKE_OK;
}

/* Marks what the group's patterns match and no earlier group has. A pattern that matches nothing is
 * a mistake. */
static yoke_status mark_members(candidates *among, const yoke_parameter_group *group, int mark,
                                int *marks) {
    const char *unmatched = NULL;
    bool vectors = group->one_dimensional;
    TRY(yoke_patterns_mark(vectors ? &among->vectors : &among->parameters, group->pattern, mark,
                           marks, &unmatched));
    if (unmatched == NULL) return YOKE_OK;
    return yoke_patterns_fail(
        among->model, vectors ? "parameter group of one dimension" : "parameter group", unmatched);
}

static int first_with(const int *marks, int count, int mark) {
    int i = 0;
    while (i < count && marks[i] != mark)
        i++;
    return i < count ? i : -1;
}

/* So is a group without members, behind wider ones. marks: room for those of all tensors. */
static yoke_status check_members(const yoke_groups *groups, candidates *among, int group,
                                 int *marks) {
    int tensors = yoke_model_tensor_count(among->model);
    if (first_with(groups->members, tensors, group) >= 0) return YOKE_OK;
    for (int i = 0; i < tensors; i++)
        marks[i] = -1;
    TRY(mark_members(among, &groups->list[group], group, marks));
    int taken = first_with(marks, tensors, group);
    yoke_tensor_info info = {.struct_size = sizeof info};
    TRY(yoke_model_tensor(among->model, taken, &info));
    return FAIL(YOKE_ERROR_ARGUMENT,
                "parameter group \"%s\" matches only parameters of earlier groups: \"%s\" has %s; "
                "the first match counts, so put narrow patterns first",
                groups->list[group].pattern, groups->list[groups->members[taken]].pattern,
                info.name);
}

static yoke_status find_members(yoke_groups *groups, candidates *among) {
    int tensors = yoke_model_tensor_count(among->model);
    for (int i = 0; i < tensors; i++)
        groups->members[i] = -1;
    for (int group = 0; group < groups->count; group++)
        TRY(mark_members(among, &groups->list[group], group, groups->members));
    int *marks = yoke_malloc((size_t)tensors * sizeof *marks);
    if (marks == NULL) return FAIL_MEMORY((size_t)tensors * sizeof *marks, "parameter groups");
    yoke_status status = YOKE_OK;
    for (int group = 0; group < groups->count && status == YOKE_OK; group++)
        status = check_members(groups, among, group, marks);
    yoke_free(marks);
    return status;
}

static yoke_status assign(yoke_groups *groups, const yoke_model *model) {
    candidates among = {0};
    int trained = 0;
    yoke_status status = find_candidates(&among, model);
    if (status == YOKE_OK) status = find_members(groups, &among);
    for (int i = 0; i < among.parameters.count && status == YOKE_OK; i++) {
        int tensor = among.parameters.sorted[i].index;
        groups->frozen[tensor] =
            groups->members[tensor] >= 0 && groups->list[groups->members[tensor]].frozen;
        trained += !groups->frozen[tensor];
    }
    yoke_names_destroy(&among.parameters);
    yoke_names_destroy(&among.vectors);
    if (status != YOKE_OK || trained > 0) return status;
    return FAIL(YOKE_ERROR_ARGUMENT, "the groups freeze every parameter of %s: leave one to train",
                yoke_model_name(model));
}

static bool has_momentum(const yoke_optimizer_options *options) {
    unsigned reads = yoke_optimizer_rule_of(options->kind)->reads;
    return (reads & YOKE_READS_MOMENTUM) != 0 && options->momentum > 0;
}

yoke_status yoke_groups_create(yoke_step *step) {
    yoke_data_parallel_options *options = &step->options;
    yoke_groups *groups = &step->groups;
    const yoke_parameter_group *given = options->groups;
    int count = options->group_count;
    options->groups = NULL; /* may be gone after create */
    if (count < 0 || (count > 0 && given == NULL))
        return FAIL(YOKE_ERROR_ARGUMENT, "group_count is %d, and groups is %s", count,
                    given != NULL ? "set" : "NULL");
    if (count == 0 && !options->inference) return YOKE_OK;
    size_t tensors = (size_t)yoke_model_tensor_count(step->model);
    groups->frozen = yoke_calloc(tensors, sizeof *groups->frozen);
    if (groups->frozen == NULL) return FAIL_MEMORY(tensors, "parameter groups");
    for (size_t i = 0; i < tensors; i++)
        groups->frozen[i] = options->inference; /* an engine that only predicts trains nothing */
    if (options->inference) return YOKE_OK;
    groups->members = yoke_calloc(tensors, sizeof *groups->members);
    if (groups->members == NULL)
        return FAIL_MEMORY(tensors * sizeof *groups->members, "parameter groups");
    TRY(yoke_groups_load(groups, given, count));
    for (int i = 0; i < groups->count; i++)
        if (groups->list[i].momentum > 0 && !has_momentum(&step->optimizer_options))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "groups[%d]: momentum of %g, but the optimizer has none: choose sgd, "
                        "rmsprop, muon or muon-filters with momentum above 0",
                        i, groups->list[i].momentum);
    return assign(groups, step->model);
}

static const yoke_parameter_group *group_of(const yoke_groups *groups, int tensor) {
    int member = groups->members != NULL ? groups->members[tensor] : -1;
    return member >= 0 ? &groups->list[member] : NULL;
}

bool yoke_groups_ask_decay(const yoke_groups *groups, int tensor) {
    const yoke_parameter_group *group = group_of(groups, tensor);
    return group != NULL && group->set_weight_decay && group->weight_decay > 0;
}

/* Ranges. */

static yoke_optimizer_range range_of(const yoke_step *step, const yoke_parameter *parameter) {
    const yoke_parameter_group *group = group_of(&step->groups, parameter->tensor);
    yoke_optimizer_range range = {.offset = parameter->offset,
                                  .learning_rate_scale = 1,
                                  .weight_decay = step->optimizer_options.weight_decay};
    range.trained_by = yoke_models_training(step, parameter->tensor);
    if (group != NULL) range.learning_rate_scale = group->learning_rate_scale;
    if (group != NULL && group->set_weight_decay) range.weight_decay = group->weight_decay;
    if (group != NULL) range.momentum = group->momentum, range.steps = group->steps;
    range.elements = parameter->elements;
    bool filters = yoke_optimizer_rule_of(step->optimizer_options.kind)->sees == YOKE_SEES_FILTERS;
    yoke_model_matrix(step->model, parameter->tensor, filters, &range.matrix.rows,
                      &range.matrix.columns);
    range.matrix.layout = &parameter->layout;
    range.matrix.plain = &parameter->plain;
    if (range.weight_decay > 0 && !yoke_groups_ask_decay(&step->groups, parameter->tensor))
        range.reached_by = yoke_reach_of(&step->reach, parameter->tensor);
    return range;
}

static bool are_alike(const yoke_optimizer_range *a, const yoke_optimizer_range *b) {
    return a->learning_rate_scale == b->learning_rate_scale && a->weight_decay == b->weight_decay &&
           a->reached_by == b->reached_by && a->trained_by == b->trained_by &&
           a->momentum == b->momentum && a->steps == b->steps;
}

/* Neighbours with the same settings share a range, where the optimizer sees elements alone. */
yoke_status yoke_groups_cut(yoke_step *step) {
    const yoke_flat *flat = step->flat;
    yoke_optimizer_ranges *ranges = &step->groups.ranges;
    bool joins = yoke_optimizer_rule_of(step->optimizer_options.kind)->sees == YOKE_SEES_ELEMENTS;
    bool one =
        joins && step->groups.count == 0 && step->reach.outputs == NULL && !step->trains_parts;
    if (one || flat->trainable_count == 0) return YOKE_OK;
    size_t bytes = (size_t)flat->trainable_count * sizeof *ranges->items;
    ranges->items = yoke_malloc(bytes);
    if (ranges->items == NULL) return FAIL_MEMORY(bytes, "parameter groups");
    for (int i = 0; i < flat->trainable_count; i++) {
        yoke_optimizer_range range = range_of(step, &flat->parameters[i]);
        const yoke_optimizer_range *last = &ranges->items[ranges->count - (i > 0)];
        if (joins && i > 0 && are_alike(last, &range)) continue;
        ranges->items[ranges->count++] = range;
    }
    return YOKE_OK;
}

void yoke_groups_destroy(yoke_groups *groups) {
    yoke_free(groups->ranges.items);
    yoke_free(groups->frozen);
    yoke_free(groups->members);
    for (int i = 0; i < groups->count; i++)
        yoke_free(groups->patterns[i]);
    yoke_free(groups->patterns);
    yoke_free(groups->list);
}

void yoke_groups_write(FILE *facts, const yoke_groups *groups) {
    for (int i = 0; i < groups->count; i++) {
        const yoke_parameter_group *group = &groups->list[i];
        char text[32];
        fprintf(facts, "group %s learning_rate_scale %s", group->pattern,
                yoke_text_of_real(group->learning_rate_scale, text, sizeof text));
        if (group->set_weight_decay)
            fprintf(facts, " weight_decay %s",
                    yoke_text_of_real(group->weight_decay, text, sizeof text));
        if (group->momentum > 0)
            fprintf(facts, " momentum %s", yoke_text_of_real(group->momentum, text, sizeof text));
        if (group->steps > 0) fprintf(facts, " steps %llu", (unsigned long long)group->steps);
        fprintf(facts, "%s%s\n", group->one_dimensional ? " one_dimensional" : "",
                group->frozen ? " frozen" : "");
    }
}

bool yoke_groups_freeze(const yoke_groups *groups, int tensor) {
    return groups->frozen != NULL && groups->frozen[tensor];
}

const yoke_optimizer_ranges *yoke_groups_ranges(const yoke_groups *groups) {
    return groups->ranges.items != NULL ? &groups->ranges : NULL;
}
