/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the setup of a bench row on the ranks of `yoke compare`. */
#include "bench/tool/bench_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

static compare_setup setup_of(const bench_setup *row) {
    compare_setup setup = {.device_count = row->devices,
                           .threads = row->threads,
                           .batch = row->rows * row->devices,
                           .precision = row->precision,
                           .algorithm = row->algorithm,
                           .ddp_schedule = row->schedule,
                           .optimizer = {.struct_size = sizeof setup.optimizer,
                                         .kind = YOKE_SGD,
                                         .learning_rate = 0.1,
                                         .momentum = BENCH_MOMENTUM,
                                         .weight_decay = BENCH_WEIGHT_DECAY}};
    yoke_shape shape = bench_input_shape(row);
    snprintf(setup.model, sizeof setup.model, "%s", row->model);
    snprintf(setup.dataset, sizeof setup.dataset, "synthetic:%dx%dx%d,rows=%d", shape.channels,
             shape.height, shape.width, setup.batch);
    for (int i = 0; i < row->devices; i++)
        snprintf(setup.names[i], sizeof setup.names[i], "cpu:%d", i);
    return setup;
}

yoke_status bench_ranks_create(bench_ranks **ranks, const bench_setup *setup) {
    *ranks = NULL;
    bench_ranks *made = calloc(1, sizeof *made);
    if (made == NULL)
        return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d ranks", setup->devices);
    made->setup = setup_of(setup);
    made->contender = (compare_contender){.kind = COMPARE_DDP, .devices = setup->devices};
    made->met = compare_meeting_open(&made->meeting) < 0;
    yoke_status status =
        made->met ? compare_contender_build(&made->contender, &made->setup, &made->meeting)
                  : YOKE_ERROR_SYSTEM;
    if (status == YOKE_OK)
        *ranks = made;
    else
        bench_ranks_destroy(made);
    return status;
}

void bench_ranks_destroy(bench_ranks *ranks) {
    if (ranks == NULL) return;
    compare_contender_clear(&ranks->contender);
    if (ranks->met) compare_meeting_close(&ranks->meeting);
    free(ranks);
}
