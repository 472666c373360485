/* SPDX-License-Identifier: Apache-2.0 */
/* Learning: fits over rows, single steps, evaluations. */
#include <math.h>
#include <string.h>

#include "model/model.h"
#include "net/net.h"
#include "yoke/evaluation.h"

/* A fit in progress. */
typedef struct fit {
    yoke_net *net;
    const yoke_fit_options *options;
    const yoke_dataset *test; /* NULL: none */
    yoke_loader *loader, *test_loader;
    yoke_lr_schedule schedule;
    uint64_t epochs, steps; /* to do; steps 0: until the epochs are over */
    uint64_t done;          /* steps */
    double loss, weight;    /* of the epoch: a sum, and what divides it */
    int64_t correct, labels;
    bool is_over;     /* the host program, or `patience`, ends it */
    yoke_state *best; /* weights of the best evaluation; NULL: not kept */
    double best_loss, best_accuracy;
    int worse; /* evaluations since the best */
    yoke_fit_result *result;
} fit;

static double accuracy_of(int64_t correct, int64_t labels) {
    return correct < 0 || labels == 0 ? -1 : (double)correct / (double)labels;
}

/* What the host program hears. */

static yoke_status report(fit *own) {
    yoke_net *net = own->net;
    yoke_net_info info = {.struct_size = sizeof info};
    yoke_net_tell(net);
    if (own->options->progress == NULL) return YOKE_OK;
    TRY(yoke_net_query(net, &info));
    yoke_outside outside = yoke_step_out(net->engine);
    if (!own->options->progress(own->options->payload, &info)) own->is_over = true;
    return yoke_step_in(net->engine, &outside, YOKE_OK);
}

/* Evaluation. */

static yoke_status evaluate_loader(yoke_net *net, yoke_loader *loader, yoke_step_result *result) {
    yoke_evaluation *evaluation = NULL;
    yoke_evaluation_info info = {.struct_size = sizeof info};
    uint64_t activity = net->now.activity;
    net->now.activity = YOKE_NET_EVALUATING;
    yoke_net_tell(net);
    yoke_status status = yoke_evaluation_run(&evaluation, net->engine, loader);
    if (status == YOKE_OK) status = yoke_evaluation_describe(evaluation, &info);
    yoke_evaluation_destroy(evaluation);
    net->now.activity = activity;
    TRY(status);
    bool classifies = info.classes > 0;
    *result = (yoke_step_result){.struct_size = sizeof *result,
                                 .loss = info.loss,
                                 .rows = (int)info.rows,
                                 .correct = classifies ? (int)info.correct : -1,
                                 .gradient_norm = -1,
                                 .weight = (double)info.labels,
                                 .labels = (int)info.labels};
    net->now.test_loss = info.loss;
    net->now.test_accuracy = classifies ? accuracy_of(info.correct, info.labels) : -1;
    yoke_net_tell(net);
    return YOKE_OK;
}

/* Whether the test loss is the best so far; keeps the weights of the best. */
static yoke_status watch(fit *own) {
    yoke_net *net = own->net;
    bool better = isnan(own->best_loss) || net->now.test_loss < own->best_loss;
    own->worse = better ? 0 : own->worse + 1;
    if (own->options->patience > 0 && own->worse >= own->options->patience) own->is_over = true;
    if (!better) return YOKE_OK;
    own->best_loss = net->now.test_loss;
    own->best_accuracy = net->now.test_accuracy;
    return own->best != NULL ? yoke_state_keep_best(own->best, net->engine) : YOKE_OK;
}

static yoke_status evaluate_test(fit *own) {
    yoke_step_result ignored;
    if (own->test_loader == NULL) return YOKE_OK;
    TRY(evaluate_loader(own->net, own->test_loader, &ignored));
    return watch(own);
}

/* Training. */

static yoke_status train_batch(fit *own, const yoke_batch *batch) {
    yoke_net *net = own->net;
    yoke_step_result result = {.struct_size = sizeof result};
    double rate = yoke_lr_schedule_rate(&own->schedule, own->done);
    TRY(yoke_data_parallel_step(net->engine, batch, rate, &result));
    own->loss += result.loss * result.weight;
    own->weight += result.weight;
    own->correct = result.correct < 0 ? -1 : own->correct + result.correct;
    own->labels += result.labels;
    own->done++;
    net->now.step++;
    net->now.loss = result.loss;
    net->now.step_ns = yoke_now_ns();
    yoke_net_show_first(net);
    return report(own);
}

static bool is_over(const fit *own) {
    return own->is_over || (own->steps > 0 && own->done >= own->steps);
}

static void store_epoch(fit *own) {
    own->result->steps = own->done;
    own->result->seconds = (double)(own->net->now.step_ns - own->net->now.begin_ns) * 1e-9;
    if (own->weight > 0) own->result->loss = own->loss / own->weight;
    if (own->labels > 0) own->result->accuracy = accuracy_of(own->correct, own->labels);
}

static yoke_status train_epoch(fit *own) {
    yoke_net *net = own->net;
    yoke_batch batch = {.struct_size = sizeof batch};
    own->loss = own->weight = 0;
    own->correct = own->labels = 0;
    TRY(yoke_loader_begin(own->loader, net->epochs++));
    while (!is_over(own)) {
        TRY(yoke_loader_next(own->loader, &batch, NULL));
        if (batch.rows == 0) break;
        TRY(train_batch(own, &batch));
    }
    store_epoch(own);
    yoke_net_changed(net);
    if (own->done == 0) return FAIL(YOKE_ERROR_DATA, "the rows end before the first batch");
    TRY(evaluate_test(own));
    TRY(report(own));
    yoke_net_log(net, YOKE_LOG_INFO, "epoch %llu: loss %.4g, accuracy %.4g; test loss %.4g, %.4g",
                 (unsigned long long)net->now.epoch, own->result->loss, own->result->accuracy,
                 net->now.test_loss, net->now.test_accuracy);
    return YOKE_OK;
}

static yoke_status train(fit *own) {
    yoke_net *net = own->net;
    for (net->now.epoch = 0; !is_over(own); net->now.epoch++) {
        if (own->steps == 0 && net->now.epoch >= own->epochs) break;
        yoke_status status = train_epoch(own);
        if (status != YOKE_OK) store_epoch(own);
        TRY(status);
    }
    bool restores = own->best != NULL && own->worse > 0;
    return restores ? yoke_state_give_best(net->engine, own->best) : YOKE_OK;
}

/* Opening. */

static yoke_status check_options(const fit *own, const yoke_fit_options *options) {
    bool arrays = options->test_inputs != NULL;
    if (options->epochs < 0 || options->batch < 0 || options->patience < 0 ||
        !(options->learning_rate >= 0))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "epochs %d, batch %d, patience %d, learning_rate %g: none may be negative",
                    options->epochs, options->batch, options->patience, options->learning_rate);
    if (options->batch > own->net->options.batch)
        return FAIL(YOKE_ERROR_ARGUMENT, "a batch of %d rows: the net was opened for %d at most",
                    options->batch, own->net->options.batch);
    if (options->lr_schedule < YOKE_LR_CONSTANT || options->lr_schedule > YOKE_LR_LINEAR)
        return FAIL(YOKE_ERROR_ARGUMENT, "lr_schedule is %d: it is one of yoke_lr_schedule_kind",
                    (int)options->lr_schedule);
    if (arrays && options->test_rows != NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "test_inputs and test_rows are both set: leave one of them NULL");
    if (options->patience > 0 && !arrays && options->test_rows == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "patience %d needs rows to evaluate: set test_inputs or test_rows",
                    options->patience);
    return YOKE_OK;
}

static yoke_status open_loader(const yoke_net *net, yoke_loader **loader, const yoke_dataset *rows,
                               yoke_loader_options options) {
    options.struct_size = sizeof options;
    options.seed = net->options.seed;
    options.devices = net->devices;
    if (options.batch == 0) options.batch = net->options.batch;
    TRY(yoke_loader_create(loader, rows, &options));
    return yoke_loader_select_inputs(*loader, net->model);
}

static yoke_status open_loaders(fit *own, const yoke_dataset *rows) {
    const yoke_fit_options *options = own->options;
    yoke_loader_options training = {.batch = options->batch,
                                    .shuffle = !options->no_shuffle,
                                    .drop_last = options->drop_last,
                                    .augment = options->augment};
    TRY(open_loader(own->net, &own->loader, rows, training));
    if (own->test == NULL) return YOKE_OK;
    return open_loader(own->net, &own->test_loader, own->test, (yoke_loader_options){0});
}

static yoke_status plan(fit *own) {
    yoke_net *net = own->net;
    const yoke_fit_options *options = own->options;
    size_t batches = yoke_loader_batch_count(own->loader);
    own->epochs = options->epochs > 0 ? (uint64_t)options->epochs : 1;
    own->steps = options->steps;
    net->now.steps = own->steps;
    if (own->steps == 0 && batches != SIZE_MAX) net->now.steps = own->epochs * batches;
    own->schedule = (yoke_lr_schedule){.struct_size = sizeof own->schedule,
                                       .kind = options->lr_schedule,
                                       .learning_rate = options->learning_rate > 0
                                                            ? options->learning_rate
                                                            : net->optimizer.learning_rate,
                                       .steps = net->now.steps,
                                       .warmup_steps = options->warmup_steps};
    net->now.steps += net->now.steps > 0 ? net->now.step : 0; /* of all calls */
    net->now.begin_ns = net->now.step_ns = yoke_now_ns();
    if (options->patience > 0) TRY(yoke_state_create(&own->best, net->engine, true));
    return YOKE_OK;
}

static yoke_status run(fit *own, const yoke_dataset *rows) {
    yoke_net *net = own->net;
    TRY(yoke_net_check_trains(net, "yoke_net_fit"));
    TRY(open_loaders(own, rows));
    TRY(plan(own));
    TRY(yoke_data_parallel_bind(net->engine));
    yoke_status status = train(own);
    yoke_data_parallel_unbind(net->engine);
    if (!isnan(own->best_loss)) {
        bool best = own->options->patience > 0;
        own->result->test_loss = best ? own->best_loss : net->now.test_loss;
        own->result->test_accuracy = best ? own->best_accuracy : net->now.test_accuracy;
    }
    yoke_net_changed(net);
    return status;
}

static yoke_status open_test(fit *own, const yoke_net_rows *test, yoke_dataset **opened) {
    own->test = own->options->test_rows;
    if (test->inputs == NULL) return YOKE_OK;
    TRY(yoke_net_rows_open(opened, test));
    own->test = *opened;
    return YOKE_OK;
}

static yoke_status fit_with(yoke_net *net, const yoke_dataset *rows,
                            const yoke_fit_options *options, yoke_fit_result *result) {
    yoke_dataset *opened = NULL;
    yoke_net_rows test = {
        .model = net->model, .inputs = options->test_inputs, .targets = options->test_targets};
    fit own = {.net = net,
               .options = options,
               .best_loss = (double)NAN,
               .best_accuracy = -1,
               .result = result};
    TRY(check_options(&own, options));
    if (test.inputs != NULL) TRY(yoke_net_rows_check(&test, false, true));
    yoke_status status = open_test(&own, &test, &opened);
    if (status == YOKE_OK) status = run(&own, rows);
    yoke_error error = yoke_error_take(status);
    yoke_loader_destroy(own.loader);
    yoke_loader_destroy(own.test_loader);
    yoke_dataset_close(opened);
    yoke_state_destroy(own.best);
    return yoke_error_restore(&error);
}

/* Calls. */

/* The result is stored after a failure, too. */
static yoke_status fit_rows(yoke_net *net, const yoke_dataset *rows, const void *given,
                            void *result) {
    static const yoke_fit_options defaults = YOKE_FIT_OPTIONS_INIT;
    yoke_fit_options options = {0};
    yoke_fit_result own = {.struct_size = sizeof own,
                           .loss = (double)NAN,
                           .accuracy = -1,
                           .test_loss = (double)NAN,
                           .test_accuracy = -1};
    TRY(yoke_options_load(&options, sizeof options, given != NULL ? given : &defaults,
                          "yoke_fit_options"));
    if (result != NULL) TRY(yoke_options_store(result, &own, sizeof own, "yoke_fit_result"));
    yoke_error error = yoke_error_take(fit_with(net, rows, &options, &own));
    if (result != NULL) TRY(yoke_options_store(result, &own, sizeof own, "yoke_fit_result"));
    return yoke_error_restore(&error);
}

static yoke_status evaluate_rows(yoke_net *net, const yoke_dataset *rows, const void *options,
                                 void *result) {
    yoke_step_result own;
    yoke_loader *loader = NULL;
    (void)options;
    yoke_status status = open_loader(net, &loader, rows, (yoke_loader_options){0});
    if (status == YOKE_OK) status = evaluate_loader(net, loader, &own);
    yoke_error error = yoke_error_take(status);
    yoke_loader_destroy(loader);
    TRY(yoke_error_restore(&error));
    return yoke_options_store(result, &own, sizeof own, "yoke_step_result");
}

/* A call over rows: those of a dataset, or of arrays as one. */
typedef struct rows_call {
    const char *name;
    yoke_net_activity activity;
    yoke_status (*run)(yoke_net *net, const yoke_dataset *rows, const void *options, void *result);
    const void *options;
    void *result;
} rows_call;

static yoke_status run_call(yoke_net *net, const yoke_dataset *rows, const rows_call *own) {
    yoke_net_call call;
    TRY(yoke_net_begin(net, own->name, own->activity, &call));
    return yoke_net_end(net, &call, own->run(net, rows, own->options, own->result));
}

static yoke_status run_on_arrays(yoke_net *net, const yoke_array *inputs, const yoke_array *targets,
                                 const rows_call *own) {
    yoke_dataset *dataset = NULL;
    TRY(yoke_pointer_check(net, "net"));
    yoke_net_rows rows = {.model = net->model, .inputs = inputs, .targets = targets};
    TRY(yoke_net_rows_check(&rows, false, true));
    TRY(yoke_net_rows_open(&dataset, &rows));
    yoke_error error = yoke_error_take(run_call(net, dataset, own));
    yoke_dataset_close(dataset);
    return yoke_error_restore(&error);
}

yoke_status yoke_net_fit_rows(yoke_net *net, const yoke_dataset *rows,
                              const yoke_fit_options *options, yoke_fit_result *result) {
    const rows_call own = {"yoke_net_fit_rows", YOKE_NET_FITTING, fit_rows, options, result};
    TRY(yoke_pointer_check(rows, "rows"));
    return run_call(net, rows, &own);
}

yoke_status yoke_net_fit(yoke_net *net, const yoke_array *inputs, const yoke_array *targets,
                         const yoke_fit_options *options, yoke_fit_result *result) {
    const rows_call own = {"yoke_net_fit", YOKE_NET_FITTING, fit_rows, options, result};
    return run_on_arrays(net, inputs, targets, &own);
}

yoke_status yoke_net_evaluate_rows(yoke_net *net, const yoke_dataset *rows,
                                   yoke_step_result *result) {
    const rows_call own = {"yoke_net_evaluate_rows", YOKE_NET_EVALUATING, evaluate_rows, NULL,
                           result};
    TRY(yoke_pointer_check(rows, "rows"));
    return run_call(net, rows, &own);
}

yoke_status yoke_net_evaluate(yoke_net *net, const yoke_array *inputs, const yoke_array *targets,
                              yoke_step_result *result) {
    const rows_call own = {"yoke_net_evaluate", YOKE_NET_EVALUATING, evaluate_rows, NULL, result};
    return run_on_arrays(net, inputs, targets, &own);
}
