/* SPDX-License-Identifier: Apache-2.0 */
/* Activation checkpointing (Chen et al. 2016): ranges of nodes whose values are not kept from
 * forward to backward. Right before the backward of a range's last node, its forward runs again, by
 * the same plans at the same addresses. In between, their memory is other values'. */
#include <math.h>
#include <stdlib.h>

#include "model/program.h"

/* Ranges. */

/* Bytes that node `index` writes to the arena. */
static size_t output_bytes(const yoke_program *program, int index) {
    if (index == program->loss_node) return 0;
    return program->layouts[program->model->nodes[index].output].bytes;
}

/* Values that nodes up to `index` write, and later ones read. */
static int count_crossing(const yoke_program *program, int index) {
    const yoke_model *model = program->model;
    int crossing = 0;
    for (int i = 0; i <= index; i++) {
        bool crosses = false;
        for (int j = index + 1; j < model->node_count; j++)
            for (int k = 0; k < model->nodes[j].input_count; k++)
                crosses = crosses || model->nodes[j].inputs[k] == model->nodes[i].output;
        crossing += crosses;
    }
    return crossing;
}

/* Cuts the model into about sqrt(nodes) ranges of as many bytes, between blocks where it can: there
 * one value alone crosses. The last range stays as it is, since its backward comes at once. */
static void cut_model(yoke_program *program, int *ranges) {
    const yoke_model *model = program->model;
    int last = model->node_count - model->output_count, range = 1;
    size_t whole = 0, bytes = 0;
    for (int i = 0; i < last; i++)
        whole += output_bytes(program, i);
    double share = (double)whole / fmax(sqrt(last), 1);
    for (int i = 0; i < last; i++) {
        ranges[i] = range;
        bytes += output_bytes(program, i);
        bool enough = (double)bytes >= share, late = (double)bytes >= 2 * share;
        if (!enough || (!late && count_crossing(program, i) > 1)) continue;
        range++;
        bytes = 0;
    }
    for (int i = 0; i < last; i++)
        if (ranges[i] == range) ranges[i] = 0;
}

/* Of each node the number of its range, 0: none. Marks of the model count; without any of them the
 * model is cut where `automatic`. */
static void find_ranges(yoke_program *program, bool automatic, int *ranges) {
    const yoke_model *model = program->model;
    bool marked = false;
    for (int i = 0; i < model->node_count - model->output_count; i++) {
        ranges[i] = model->nodes[i].recomputed;
        marked = marked || ranges[i] > 0;
    }
    if (!marked && automatic) cut_model(program, ranges);
    /* What the loss has left for backward is not made again. */
    if (program->loss_node != YOKE_NONE) ranges[program->loss_node] = 0;
}

/* What backward needs of a range. */

static bool is_read_again(const yoke_program *program, int reader, int input) {
    return yoke_program_runs_backward(program, &program->model->nodes[reader]) &&
           yoke_plan_describe(program->plans[reader])->backward_reads[input];
}

/* Whether a node between `index` and `end` needs what this one writes. */
static bool feeds(const yoke_program *program, int index, int end, const bool *needed) {
    const yoke_model *model = program->model;
    for (int j = index + 1; j <= end; j++)
        for (int k = 0; k < model->nodes[j].input_count; k++)
            if (model->nodes[j].inputs[k] == model->nodes[index].output &&
                (needed[j] || is_read_again(program, j, k)))
                return true;
    return false;
}

/* Of a range that ends with node `end`: from the last node to the first. */
static bool is_needed(const yoke_program *program, int index, int end, const bool *needed) {
    const yoke_plan_needs *needs = yoke_plan_describe(program->plans[index]);
    bool backward = yoke_program_runs_backward(program, &program->model->nodes[index]);
    return (backward && (needs->saved_bytes > 0 || needs->backward_reads_output)) ||
           feeds(program, index, end, needed);
}

/* Steps. */

/* Numbers the steps of backward from the last node on, with those that run forward again. */
static void number_steps(yoke_program *program, const int *ranges, const bool *needed) {
    int step = program->model->node_count + 1, end = program->model->node_count - 1;
    for (int node = end; node >= 0; node--) {
        bool ends = ranges[node] > 0 && (node == end || ranges[node + 1] != ranges[node]);
        int begin = node;
        while (ends && begin > 0 && ranges[begin - 1] == ranges[node])
            begin--;
        for (int i = begin; ends && i <= node; i++)
            if (needed[i]) program->again[i] = step++;
        program->backward[node] = step++;
    }
}

yoke_status yoke_plan_steps(yoke_program *program, bool automatic) {
    size_t nodes = (size_t)program->model->node_count;
    int *ranges = yoke_calloc(nodes, sizeof *ranges);
    bool *needed = yoke_calloc(nodes, sizeof *needed);
    bool enough = ranges != NULL && needed != NULL;
    for (size_t i = 0; i < nodes; i++)
        program->again[i] = YOKE_NONE;
    if (enough && program->training) find_ranges(program, automatic, ranges);
    for (int i = (int)nodes - 1, end = i; enough && i >= 0; i--) {
        if (ranges[i] == 0) continue;
        if (i + 1 == (int)nodes || ranges[i + 1] != ranges[i]) end = i;
        needed[i] = is_needed(program, i, end, needed);
    }
    if (enough) number_steps(program, ranges, needed);
    yoke_free(ranges);
    yoke_free(needed);
    return enough ? YOKE_OK : FAIL_MEMORY(nodes * sizeof *ranges, "the steps of a program");
}
