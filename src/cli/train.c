/* SPDX-License-Identifier: Apache-2.0 */
/* yoke train: one run, from the command line to its result. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/control.h"
#include "cli/launch/launch_environment.h"
#include "cli/live/live.h"
#include "cli/progress.h"
#include "cli/range_test.h"
#include "cli/result.h"
#include "cli/run_files.h"
#include "cli/staleness.h"
#include "cli/stop_signals.h"
#include "cli/train_advice.h"
#include "cli/train_page.h"

typedef struct session {
    train_setup setup;
    char *const *command; /* the tool, then argv */
    device_view view;
    yoke_trainer *trainer;
    progress progress;
    train_curves curves; /* for --report */
    uint64_t steps;      /* of the whole run */
    double seconds;      /* since training began, at the last event */
    live_view *live;     /* NULL: none */
    yoke_rank_info rank;
    rank_token token;
    group_list groups;
    yoke_lr_find_result found; /* with --lr-find */
    skipped_list skipped;
    algorithm_cache_place algorithm_cache;
    int control;    /* where yoke resize asks; -1: nowhere */
    bool speaks;    /* rank 0; the others print failures only */
    bool has_table; /* the heads of the epochs' columns are printed */
} session;

/* A rank that is rank 0 now reports from here on. */
static void follow_rank(session *now, const yoke_event *event) {
    now->speaks = event->rank == 0;
    now->progress.silent = now->setup.quiet || !now->speaks;
}

/* "devices LIST" of yoke resize. */
static int answer_resize(const char *request, char text[CONTROL_BYTES], void *context) {
    const session *now = context;
    static const char key[] = "devices ";
    if (strncmp(request, key, sizeof key - 1) != 0) {
        snprintf(text, CONTROL_BYTES, "trains in one process, without ranks: give --devices");
        return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    }
    const char *list = request + sizeof key - 1;
    yoke_status status = yoke_trainer_resize(now->trainer, list);
    if (status == YOKE_OK)
        snprintf(text, CONTROL_BYTES, "goes on with %s from its next step", list);
    else
        snprintf(text, CONTROL_BYTES, "%s", yoke_last_error());
    return yoke_status_exit_code(status);
}

static void on_event(const yoke_event *event, void *payload) {
    session *now = payload;
    now->steps = event->steps;
    now->seconds = event->seconds_elapsed;
    if (now->setup.report != NULL) train_curves_add(&now->curves, event);
    if (now->live != NULL) live_add(now->live, event);
    if (event->kind == YOKE_EVENT_STEP) {
        if (now->speaks) progress_step(&now->progress, event);
        control_serve(now->control, answer_resize, now);
        return;
    }
    if (event->kind == YOKE_EVENT_EVALUATION) return; /* EPOCH has its numbers */
    /* A row above the picture would cost a new picture, and wait for a stopped terminal. */
    bool has_picture = now->live != NULL && now->progress.begun && !now->progress.no_room;
    if (event->kind == YOKE_EVENT_EPOCH && has_picture) return;
    progress_clear(&now->progress);
    bool change = event->kind == YOKE_EVENT_LOST || event->kind == YOKE_EVENT_JOINED;
    if (change || event->kind == YOKE_EVENT_READY) follow_rank(now, event);
    if (event->kind == YOKE_EVENT_SKIPPED) skipped_add(&now->skipped, event->skip);
    bool warns = event->kind == YOKE_EVENT_WARNING || (change && now->speaks);
    if (warns) fprintf(stderr, "yoke: warning: %s\n", event->text);
    if (event->kind == YOKE_EVENT_READY)
        now->progress.unit = rate_unit(yoke_trainer_model(now->trainer));
    if (now->setup.quiet || !now->speaks) return;
    /* The engine may be another one: LOST, JOINED, RESIZED, or the WARNING that it is not resized.
     */
    if (now->live != NULL && yoke_trainer_engine(now->trainer) != NULL)
        live_ready(now->live, now->trainer, &now->view);
    if (event->kind == YOKE_EVENT_READY) {
        print_plan(stderr, now->trainer, &now->view);
        print_groups(stderr, now->trainer, &now->groups);
    }
    if (event->kind == YOKE_EVENT_SKIPPED) {
        fputs("init     ", stderr);
        cli_print_text(stderr, event->text, 0);
        fputc('\n', stderr);
    }
    if (event->kind == YOKE_EVENT_SAVED) fprintf(stderr, "wrote %s\n", event->text);
    if (event->kind == YOKE_EVENT_RESUMED || event->kind == YOKE_EVENT_STOPPED ||
        event->kind == YOKE_EVENT_RESIZED)
        fprintf(stderr, "%s\n", event->text);
    if (event->kind != YOKE_EVENT_EPOCH) return;
    print_epoch(stderr, event, now->setup.run.evaluate_every >= 0,
                now->has_table ? NULL : now->progress.unit);
    now->has_table = true;
}

static void print_advice(const session *now) {
    const train_setup *setup = &now->setup;
    if (setup->lr_find > 0) {
        range_test_print_next(stderr, &now->found, now->command, now->rank.world > 1);
        return;
    }
    print_train_advice(stderr, &(train_advice){.setup = setup,
                                               .command = now->command,
                                               .repeatable = now->rank.world <= 1});
}

/* The result of a run of one step at least. */
static yoke_status report(session *now) {
    const train_setup *setup = &now->setup;
    if (setup->lr_find > 0)
        return range_test_report(now->trainer, &now->found, setup->json, setup->quiet);
    FILE *words = setup->json ? stderr : stdout;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    if (yoke_trainer_engine(now->trainer) == NULL) return YOKE_OK; /* no device is left */
    yoke_status status = yoke_trainer_summarize(now->trainer, &summary);
    if (status != YOKE_OK || summary.steps == 0) return status;
    if (!setup->quiet)
        print_stages(words, yoke_data_parallel_trace(yoke_trainer_engine(now->trainer)));
    if (!setup->json || !setup->quiet) {
        print_result(words, &summary, now->progress.unit);
        print_staleness(words, now->trainer);
    }
    bool is_ddp = setup->run.mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL; /* RESIZED says it */
    if (setup->shares.measured && !is_ddp && !(setup->json && setup->quiet)) {
        fprintf(words, "rows of devices, by measured speed: ");
        print_rows(words, yoke_trainer_engine(now->trainer));
    }
    if (setup->json) status = print_result_json(stdout, now->trainer, &summary, &now->skipped);
    fflush(stdout); /* warning and advice on stderr come after it, also in one file */
    if (!setup->quiet) warn_of_result(now->trainer, &summary);
    return status;
}

/* After the result, which is then out even if the page cannot be written. ended: why the run ended
 * early; NULL: it did not. */
static yoke_status write_page(const session *now, const char *ended) {
    const train_setup *setup = &now->setup;
    train_page page = {.trainer = now->trainer,
                       .view = &now->view,
                       .curves = &now->curves,
                       .command = now->command,
                       .setup = setup,
                       .steps = now->steps,
                       .seconds = now->seconds,
                       .ended = ended,
                       .found = setup->lr_find > 0 ? &now->found : NULL};
    if (setup->report == NULL || !now->speaks) return YOKE_OK;
    yoke_status status = train_page_write(setup->report, &page);
    if (status == YOKE_OK && !setup->quiet) fprintf(stderr, "wrote %s\n", setup->report);
    return status;
}

/* Whoever reads the pipe shows the result after what stderr shows on a terminal at once. */
static bool result_comes_late(void) {
    struct stat out;
    return fstat(STDOUT_FILENO, &out) == 0 && S_ISFIFO(out.st_mode) && isatty(STDERR_FILENO);
}

/* A rank that failed by itself, while the others go on: they have the result. */
static bool is_left_to_others(const session *now, yoke_status status) {
    bool ends_all = status == YOKE_OK || status == YOKE_ERROR_CANCELLED ||
                    status == YOKE_ERROR_PEER || status == YOKE_ERROR_TIMEOUT;
    return now->setup.group.roll != NULL && !ends_all;
}

static int run(session *now) {
    const train_setup *setup = &now->setup;
    bool tests = setup->lr_find > 0;
    char ended[512] = "";
    stop_signals_begin(now->trainer, now->rank.world > 1);
    yoke_status status = tests ? range_test_run(now->trainer, setup->lr_find, &now->found)
                               : yoke_trainer_run(now->trainer);
    progress_end(&now->progress, status == YOKE_OK || status == YOKE_ERROR_CANCELLED);
    int code = status != YOKE_OK ? cli_fail(status) : 0;
    if (status != YOKE_OK) snprintf(ended, sizeof ended, "%s", cli_failure(status));
    if (status != YOKE_ERROR_NUMERIC && now->speaks && !is_left_to_others(now, status)) {
        yoke_status reported = report(now);
        if (reported != YOKE_OK && code == 0) code = cli_fail(reported);
    }
    yoke_status written = write_page(now, status != YOKE_OK ? ended : NULL);
    if (written != YOKE_OK) code = cli_fail(written);
    bool advises = code == 0 && !setup->quiet && !setup->json && now->speaks;
    if (advises && !result_comes_late()) print_advice(now);
    bool stopped = (status == YOKE_OK || status == YOKE_ERROR_CANCELLED) && written == YOKE_OK;
    int caught = stop_signals_caught();
    stop_signals_end();
    return caught != 0 && stopped ? 128 + caught : code;
}

/* Reads the rank that a launcher gave this process. -1, or the exit code. */
static int find_rank(session *now) {
    const train_setup *setup = &now->setup;
    bool ddp = setup->run.mode == YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    int code = rank_info_read(&now->rank);
    if (code >= 0) return code;
    const yoke_rank_info *rank = &now->rank;
    if (!ddp && rank->world > 1)
        return cli_usage_error("train",
                               "%s started %d processes, but --mode %s is one process for all "
                               "devices: start one, or add --mode ddp",
                               rank->source, rank->world,
                               setup->run.mode == YOKE_MODE_SINGLE ? "single" : "dp");
    if (!ddp) return -1;
    code = rank_token_read(&now->token, "train");
    if (code >= 0) return code;
    now->setup.group.rank = rank;
    now->setup.group.token = now->token.given;
    now->setup.run.process_group = &now->setup.group;
    code = rank_roll_read(&now->setup.group);
    if (code >= 0) return code;
    if (now->setup.group.roll != NULL) now->setup.run.survive = true;
    now->speaks = rank->rank == 0;
    if (!now->speaks || setup->quiet) return -1;
    if (rank->source[0] == '\0')
        fprintf(stderr, "yoke: without a launcher this is the only rank; "
                        "yoke launch --nproc-per-node 2 -- train --mode ddp starts two\n");
    else
        fprintf(stderr, "ranks    %d started by %s, on %d machine%s\n", rank->world, rank->source,
                rank->nodes, rank->nodes == 1 ? "" : "s");
    return -1;
}

/* A rank of DDP sees its own device. */
static yoke_status choose_devices(session *now) {
    yoke_trainer_options *run = &now->setup.run;
    yoke_devices_options wanted = {.struct_size = sizeof wanted,
                                   .list = run->devices,
                                   .threads = run->threads,
                                   .shards = now->setup.engine.shards};
    bool in_one_process = run->mode != YOKE_MODE_DISTRIBUTED_DATA_PARALLEL;
    bool alone = run->mode == YOKE_MODE_SINGLE;
    if (!in_one_process) {
        wanted.local_rank = now->rank.local_rank;
        wanted.local_world = now->rank.local_world;
    }
    yoke_status status = device_view_choose(&now->view, &wanted, in_one_process && !alone ? 2 : -1);
    run->devices = wanted.list;
    return status;
}

/* Measurements end differently on another number of devices: without a file that keeps them,
 * shards take the fixed rule, as the trainer does. */
static void choose_algorithms(session *now) {
    yoke_data_parallel_options *engine = &now->setup.engine;
    bool prints = now->speaks && !now->setup.quiet;
    engine->time_devices = now->setup.live;
    if (engine->algorithm == YOKE_ALGORITHM_DIRECT) return;
    if (prints) algorithm_note_fastest(engine->algorithm);
    algorithm_cache_find(&now->algorithm_cache, &now->setup.algorithm_cache,
                         now->speaks && engine->shards == 0);
    engine->algorithm_cache = now->algorithm_cache.path;
    engine->replace_broken_cache = now->algorithm_cache.replace_broken;
    if (now->algorithm_cache.replace_broken && engine->shards == 0)
        engine->measure_seconds = MEASURE_SECONDS_TRAINING;
    if (engine->shards == 0 || engine->algorithm_cache != NULL || !prints) return;
    fprintf(stderr, "yoke: --shards without an algorithm cache takes --algorithm direct, because "
                    "measured algorithms may differ between numbers of devices\n");
}

static void note_single_evaluation(const session *now) {
    const train_setup *setup = &now->setup;
    if (!setup->run.keep_best || setup->run.evaluate_every > 0 || !now->speaks || setup->quiet)
        return;
    fprintf(stderr, "yoke: --keep-best has one evaluation to compare, at the end of the run; "
                    "--evaluate-every 1 evaluates after each epoch\n");
}

/* Where nothing can be drawn, a line says so, and plain lines take the place of the view. */
static void begin_live(session *now) {
    const char *cause = NULL;
    if (!now->setup.live || !now->speaks) return;
    if (now->setup.json)
        cause = "--json prints plain lines";
    else if (!now->progress.bar)
        cause = "stderr is no terminal that can draw";
    else if ((now->live = live_open(&now->progress)) == NULL)
        cause = "the terminal does not open";
    if (cause == NULL) return;
    now->progress.bar = false;
    fprintf(stderr, "yoke: no live view: %s\n", cause);
}

/* Opens the trainer and runs it. Returns the exit code. */
static int open_and_run(session *now) {
    train_setup *setup = &now->setup;
    yoke_status status = now->speaks ? yoke_file_check(setup->report) : YOKE_OK;
    if (status == YOKE_OK) status = choose_devices(now);
    if (status != YOKE_OK) return cli_fail(status);
    note_single_evaluation(now);
    choose_algorithms(now);
    yoke_trainer_options run_options = setup->run; /* the setup stays what the command says */
    run_files_resume(&run_options);
    if (setup->lr_find > 0) range_test_fill(&run_options, &setup->engine);
    run_options.on_event = on_event;
    run_options.payload = now;
    bool counts_steps = run_options.steps > 0 || setup->lr_find > 0;
    progress_begin(&now->progress, counts_steps ? 0 : run_options.epochs, setup->log_every,
                   setup->quiet || !now->speaks);
    begin_live(now);
    progress_note(&now->progress, "measuring the fastest algorithms ...");
    status = yoke_trainer_create(&now->trainer, &run_options);
    progress_clear(&now->progress);
    if (status != YOKE_OK) return cli_fail(status);
    bool is_dp = run_options.mode == YOKE_MODE_DATA_PARALLEL && setup->lr_find == 0;
    now->control = is_dp ? control_open() : -1;
    int code = run(now);
    control_close(now->control);
    yoke_trainer_destroy(now->trainer);
    return code;
}

/* What the command, its file and its recipe say. -1, or the exit code. */
static int read_setup(session *now, const config_place *place, int argc, char **argv) {
    train_setup *setup = &now->setup;
    int code = cli_parse(&train_verb, argc, argv, setup, NULL);
    if (code < 0) code = config_apply(place, argc, argv);
    if (code < 0 && setup->lr_find > 0) code = range_test_check(argc, argv);
    if (code < 0) code = train_setup_check(setup);
    if (code < 0 && setup->config.print) code = config_print(place);
    if (code >= 0) return code;
    train_setup_complete(setup);
    code = find_rank(now);
    if (code >= 0) return code;
    if (now->speaks && !setup->quiet) config_print_recipe(place, stderr);
    code = run_files_check(setup, now->speaks);
    if (code >= 0) return code;
    code = group_list_read(&now->groups, &setup->groups);
    setup->engine.groups = now->groups.groups;
    setup->engine.group_count = now->groups.count;
    return code;
}

int train_main(int argc, char **argv) {
    session now = {.setup = train_defaults, .command = argv - 1, .control = -1, .speaks = true};
    const config_place place = {&train_verb, &now.setup, &train_defaults, sizeof now.setup,
                                &now.setup.config};
    int code = read_setup(&now, &place, argc, argv);
    if (code < 0) code = open_and_run(&now);
    train_curves_clear(&now.curves);
    live_close(now.live);
    skipped_free(&now.skipped);
    group_list_free(&now.groups);
    config_close(&now.setup.config);
    return code;
}
