/* SPDX-License-Identifier: Apache-2.0 */
/* From options to a setup. */
#include "cli/compare/compare_setup.h"

#include <math.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/dataset_rows.h"
#include "cli/launch/launch_environment.h"
#include "cli/result.h"

int compare_check_launcher(const char *verb) {
    yoke_rank_info rank;
    int code = rank_info_read(&rank);
    if (code >= 0 || rank.world <= 1) return code;
    return cli_usage_error(
        verb, "%s started %d processes, but %s starts its ranks itself; run one process",
        rank.source, rank.world, verb);
}

static bool copy_text(char *to, size_t size, const char *text) {
    return (size_t)snprintf(to, size, "%s", text) < size;
}

int compare_setup_names(compare_setup *setup, const char *verb, const char *model,
                        const char *dataset) {
    if (!copy_text(setup->model, sizeof setup->model, model))
        return cli_usage_error(verb, "--model: '%.80s...' is not the name of a model", model);
    if (!copy_text(setup->dataset, sizeof setup->dataset, dataset))
        return cli_usage_error(verb, "--dataset has more than %zu bytes",
                               sizeof setup->dataset - 1);
    return -1;
}

yoke_status compare_setup_open(const compare_setup *setup, bool names_bad, yoke_dataset **dataset) {
    static bool named;
    dataset_rows rows = {.limit = setup->limit_rows, .skip_bad = setup->skip_bad};
    dataset_rows_on_bad *on_bad = names_bad && !named ? dataset_rows_name_bad : NULL;
    named = named || names_bad;
    return dataset_rows_open(dataset, setup->dataset, YOKE_SPLIT_TRAIN, &rows, on_bad, NULL);
}

yoke_status compare_open_devices(device_view *view, const char *list, int threads) {
    yoke_devices_options wanted = {.struct_size = sizeof wanted, .list = list, .threads = threads};
    return device_view_choose(view, &wanted, 0);
}

void compare_setup_devices(compare_setup *setup, const device_view *view, int threads) {
    bool cpu = view->devices[0].capability == 0;
    setup->threads = cpu ? view->devices[0].threads : threads;
    setup->device_count = view->count;
    for (int i = 0; i < view->count; i++)
        memcpy(setup->names[i], view->devices[i].name, sizeof setup->names[i]);
    memcpy(setup->variants, view->devices[0].variants, sizeof setup->variants);
}

void compare_setup_list(const compare_setup *setup, int count, char list[COMPARE_LIST_BYTES]) {
    size_t length = 0;
    list[0] = '\0';
    for (int i = 0; i < count; i++) { /* "cuda:0#1": a second replica of "cuda:0" */
        const char *name = setup->names[i];
        length += (size_t)snprintf(list + length, COMPARE_LIST_BYTES - length, "%s%.*s",
                                   i > 0 ? "," : "", (int)strcspn(name, "#"), name);
    }
    snprintf(list + length, COMPARE_LIST_BYTES - length, "%s", setup->variants);
}

bool compare_share_a_gpu(const device_view *view, int count) {
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i && view->devices[i].uuid[0] != '\0'; k++)
            if (strcmp(view->devices[i].uuid, view->devices[k].uuid) == 0) return true;
    return false;
}
