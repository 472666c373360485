/* SPDX-License-Identifier: Apache-2.0 */
/* Random calls of the short road, right and wrong ones, on several nets at once, beside threads
 * that predict. What must hold after each is known: its status, the steps so far, and whether
 * predictions have changed. YOKE_TEST_CALLS and YOKE_TEST_SEED choose others than by day. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/net_check.h"

enum { NETS = 3, CALLS = 600, KEPT_BYTES = 1 << 20 };

typedef float outputs_of[ROWS][CHECK_CLASSES];

/* A part of a net at some time, and what the net predicted then. */
typedef struct kept_part {
    size_t count;
    yoke_net_part part;
    uint64_t step;
    outputs_of predicted;
    char bytes[KEPT_BYTES];
} kept_part;

typedef struct slot {
    yoke_net *net; /* NULL: closed */
    yoke_model *model;
    int kind; /* of model */
    bool inference, cancelled;
    uint64_t step;
    outputs_of predicted;
    kept_part kept;
    pthread_t predictor;
    atomic_bool stop;
    atomic_int wrong; /* predictions of the thread that failed or are not finite */
} slot;

static slot slots[NETS];
static check_batch rows;
static int32_t bad_labels[ROWS];
static uint64_t random_state;
static unsigned long done;
static const char *doing;
static const char *saved_path;

static unsigned below(unsigned limit) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(random_state >> 33) % limit;
}

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition))                                                                          \
            fail_msg("call %lu, %s: not so: %s; the last error: %s", done, doing, #condition,      \
                     yoke_last_error());                                                           \
    } while (0)

/* Arrays. */

static yoke_array inputs_of(int64_t count) {
    return yoke_array_of_rows(rows.inputs, YOKE_ELEMENT_FLOAT32, count,
                              yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE));
}

static yoke_array labels_of(int64_t count) {
    return yoke_array_of_numbers(rows.labels, YOKE_ELEMENT_INT32, count);
}

/* Makes one of the two arrays wrong for every net. */
static void spoil(yoke_array *inputs, yoke_array *targets) {
    switch (below(8)) {
    case 0:
        inputs->data = NULL;
        break;
    case 1:
        inputs->ndim = (int)below(2) * 40;
        break;
    case 2:
        inputs->shape[below(4)] = -1;
        break;
    case 3:
        inputs->shape[1 + below(3)] += 1;
        break;
    case 4:
        inputs->element = (yoke_element)77;
        break;
    case 5:
        targets->shape[0] -= 1;
        break;
    case 6:
        targets->data = bad_labels;
        break;
    default:
        targets->element = YOKE_ELEMENT_BFLOAT16;
        break;
    }
}

/* What predictions must be. */

static yoke_status predict_rows(yoke_net *net, int count, float *to) {
    yoke_array inputs = inputs_of(count), outputs = {0};
    outputs = yoke_array_of_rows(to, YOKE_ELEMENT_FLOAT32, count, yoke_shape_vector(CHECK_CLASSES));
    return yoke_net_predict(net, &inputs, &outputs);
}

static bool all_finite(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

static void *keep_predicting(void *context) {
    slot *own = context;
    outputs_of found;
    for (unsigned i = 0; !atomic_load(&own->stop); i++) {
        int count = 1 + (int)(i * 7 % ROWS);
        yoke_status status = predict_rows(own->net, count, found[0]);
        bool right = status == YOKE_OK && all_finite(found[0], (size_t)count * CHECK_CLASSES);
        if (!right) atomic_fetch_add(&own->wrong, 1);
        (void)usleep(200);
    }
    return NULL;
}

/* changes: predictions may be others than before; they are noted. */
static void check_slot(slot *own, bool changes) {
    outputs_of found;
    yoke_net_info info = {.struct_size = sizeof info};
    if (own->net == NULL) return;
    EXPECT(yoke_net_query(own->net, &info) == YOKE_OK);
    EXPECT(info.activity == YOKE_NET_IDLE && info.step == own->step);
    EXPECT(atomic_load(&own->wrong) == 0);
    EXPECT(predict_rows(own->net, ROWS, found[0]) == YOKE_OK);
    EXPECT(all_finite(found[0], sizeof found / sizeof found[0][0]));
    EXPECT(changes || memcmp(found, own->predicted, sizeof found) == 0);
    memcpy(own->predicted, found, sizeof found);
}

/* The status of a call with right arguments, or wrong ones, on a net that trains or does not. */
static void judge(const slot *own, yoke_status status, bool right, bool trains) {
    if (status != YOKE_OK) EXPECT(yoke_last_error()[0] != '\0');
    if (!right || (trains && own->inference))
        EXPECT(status == YOKE_ERROR_ARGUMENT || (own->cancelled && status == YOKE_ERROR_CANCELLED));
    else
        EXPECT(status == (own->cancelled ? YOKE_ERROR_CANCELLED : YOKE_OK));
}

/* Life. */

static yoke_model *model_of(int kind) {
    yoke_model *model = NULL;
    if (kind == 0) return check_model(true, 0.2);
    if (kind == 1) return check_composed(NULL);
    EXPECT_OK(yoke_model_preset(&model, "mlp:width=8",
                                yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE),
                                CHECK_CLASSES, NULL));
    return model;
}

static void open_net(slot *own) {
    doing = "open";
    yoke_net_options options = options_of(below(2) ? "cpu" : "2xcpu");
    yoke_cancellation before = {1};
    bool right = below(4) > 0;
    options.seed = below(9), options.inference = below(4) == 0;
    options.predictors = (int)below(3), options.plans = (int)below(4);
    *own = (slot){.kind = (int)below(3), .inference = options.inference};
    own->model = model_of(own->kind);
    unsigned wrong = below(6);
    if (!right && wrong == 0) options.batch = -1;
    if (!right && wrong == 1) options.devices = "7xnothing";
    if (!right && wrong == 2) options.predictors = -2;
    if (!right && wrong == 3) options.struct_size = 3;
    if (!right && wrong == 4) options.cancellation = &before;
    yoke_status status =
        yoke_net_open(&own->net, !right && wrong == 5 ? NULL : own->model, &options);
    EXPECT((status == YOKE_OK) == right && (own->net != NULL) == right);
    if (!right && wrong == 4) EXPECT(status == YOKE_ERROR_CANCELLED);
    if (!right) yoke_model_destroy(own->model);
    if (!right) return;
    check_slot(own, true);
    assert_int_equal(pthread_create(&own->predictor, NULL, keep_predicting, own), 0);
}

static void close_net(slot *own) {
    doing = "close";
    if (own->net == NULL) return;
    atomic_store(&own->stop, true);
    pthread_join(own->predictor, NULL);
    EXPECT(atomic_load(&own->wrong) == 0);
    yoke_net_close(own->net);
    yoke_model_destroy(own->model);
    own->net = NULL;
}

/* Learning. */

static void take_step(slot *own) {
    doing = "step";
    yoke_step_result result = {.struct_size = sizeof result};
    int count = 1 + (int)below(BATCH);
    yoke_array inputs = inputs_of(count), targets = labels_of(count);
    bool right = below(4) > 0, null = false;
    if (!right && below(3) == 0)
        inputs.shape[0] = targets.shape[0] = BATCH + 1;
    else if (!right && below(3) == 0)
        null = true;
    else if (!right)
        spoil(&inputs, &targets);
    yoke_status status =
        yoke_net_step(own->net, &inputs, null ? NULL : &targets, below(2) ? -1 : 0.01, &result);
    judge(own, status, right, true);
    own->step += status == YOKE_OK;
    check_slot(own, status == YOKE_OK);
}

typedef struct interruption {
    slot *own;
    unsigned when; /* calls until it happens */
    unsigned what;
    yoke_status nested;
} interruption;

/* Ends the fit, cancels it, or calls what a callback may not. */
static bool on_progress(void *payload, const yoke_net_info *info) {
    interruption *plan = payload;
    yoke_net_info found = {.struct_size = sizeof found};
    if (info->activity == YOKE_NET_IDLE || yoke_net_query(plan->own->net, &found) != YOKE_OK)
        plan->nested = YOKE_ERROR_INTERNAL;
    if (plan->when-- > 0) return true;
    if (plan->what == 0) return false;
    if (plan->what == 1) yoke_net_cancel(plan->own->net);
    if (plan->what == 2) plan->nested = yoke_net_save(plan->own->net, saved_path);
    return true;
}

static yoke_fit_options fit_of(interruption *plan, const yoke_array *inputs,
                               const yoke_array *targets) {
    yoke_fit_options options = YOKE_FIT_OPTIONS_INIT;
    options.epochs = (int)below(3), options.steps = below(3) == 0 ? 1 + below(5) : 0;
    options.batch = (int)below(BATCH + 1), options.no_shuffle = below(2);
    options.lr_schedule = below(2) ? YOKE_LR_COSINE : YOKE_LR_CONSTANT;
    options.learning_rate = below(2) ? 0 : 0.01;
    options.progress = on_progress, options.payload = plan;
    if (below(3) == 0) options.test_inputs = inputs, options.test_targets = targets;
    if (options.test_inputs != NULL && below(2)) options.patience = 1;
    return options;
}

static void fit(slot *own) {
    doing = "fit";
    interruption plan = {.own = own, .when = below(6), .what = below(6), .nested = YOKE_OK};
    yoke_fit_result result = {.struct_size = sizeof result};
    int count = BATCH + (int)below(ROWS - BATCH + 1);
    yoke_array inputs = inputs_of(count), targets = labels_of(count);
    yoke_array test_inputs = inputs, test_targets = targets;
    yoke_fit_options options = fit_of(&plan, &test_inputs, &test_targets);
    bool right = below(4) > 0;
    unsigned wrong = below(6);
    if (!right && wrong == 0) options.epochs = -1, options.steps = 0;
    if (!right && wrong == 1) options.batch = BATCH + 1;
    if (!right && wrong == 2) options.test_inputs = &test_inputs, options.test_targets = NULL;
    if (!right && wrong == 3) options.struct_size = 1;
    if (!right && wrong >= 4) spoil(&inputs, &targets);
    yoke_dataset *dataset = NULL;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = (size_t)count,
                          .shape = yoke_shape_image(CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE),
                          .inputs = rows.inputs,
                          .classes = CHECK_CLASSES,
                          .labels = rows.labels};
    if (wrong < 4 && below(3) == 0) EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    if (dataset != NULL) doing = "fit_rows";
    yoke_status status = dataset != NULL
                             ? yoke_net_fit_rows(own->net, dataset, &options, &result)
                             : yoke_net_fit(own->net, &inputs, &targets, &options, &result);
    yoke_dataset_close(dataset);
    if (plan.what == 1 && status == YOKE_ERROR_CANCELLED && !own->cancelled) {
        yoke_net_resume(own->net);
    } else {
        if (plan.what == 1 && !own->cancelled) yoke_net_resume(own->net);
        judge(own, status, right, true);
    }
    EXPECT(plan.nested == YOKE_OK || plan.nested == YOKE_ERROR_ARGUMENT);
    EXPECT(status == YOKE_OK || status == YOKE_ERROR_CANCELLED || result.steps == 0);
    own->step += result.steps;
    check_slot(own, status == YOKE_OK || result.steps > 0);
}

static void evaluate(slot *own) {
    doing = "evaluate";
    yoke_step_result result = {.struct_size = sizeof result};
    int count = 1 + (int)below(ROWS);
    yoke_array inputs = inputs_of(count), targets = labels_of(count);
    bool right = below(4) > 0;
    if (!right) spoil(&inputs, &targets);
    yoke_status status = yoke_net_evaluate(own->net, &inputs, &targets, &result);
    judge(own, status, right, false);
    if (status == YOKE_OK) EXPECT(isfinite(result.loss) && result.rows == count);
    check_slot(own, false);
}

static void predict_wrongly(slot *own) {
    doing = "predict";
    outputs_of found;
    yoke_array inputs = inputs_of(ROWS), targets = labels_of(ROWS);
    yoke_array outputs =
        yoke_array_of_rows(found, YOKE_ELEMENT_FLOAT32, ROWS, yoke_shape_vector(CHECK_CLASSES));
    bool of_outputs = below(2);
    if (of_outputs && below(2))
        outputs.shape[below(2)] += 1;
    else if (of_outputs)
        outputs.element = YOKE_ELEMENT_INT64;
    else
        inputs.shape[1 + below(3)] += 1;
    (void)targets;
    EXPECT(yoke_net_predict(own->net, &inputs, &outputs) == YOKE_ERROR_ARGUMENT);
    EXPECT(yoke_net_predict(own->net, NULL, &outputs) == YOKE_ERROR_ARGUMENT);
    EXPECT(yoke_net_predict(NULL, &inputs, &outputs) == YOKE_ERROR_ARGUMENT);
    check_slot(own, false);
}

/* Parts. */

typedef struct sink_state {
    kept_part *to;
    size_t most; /* bytes until it fails */
} sink_state;

static yoke_status take_bytes(void *payload, const void *bytes, size_t count) {
    sink_state *own = payload;
    if (own->to->count + count > own->most) return yoke_error_raise(YOKE_ERROR_IO, "no more room");
    memcpy(own->to->bytes + own->to->count, bytes, count);
    own->to->count += count;
    return YOKE_OK;
}

/* A build may have no ONNX, and a composed model no graph in it. */
static void judge_write(const slot *own, yoke_status status, bool right, yoke_net_part part) {
    bool refused = status == YOKE_ERROR_DEVICE || status == YOKE_ERROR_ARGUMENT;
    if (!right || part != YOKE_NET_GRAPH || !refused)
        judge(own, status, right, part == YOKE_NET_STATE);
}

static void write_part(slot *own) {
    doing = "write";
    bool right = below(4) > 0, wrong_part = !right && below(2);
    yoke_net_part part = (yoke_net_part)below(3); /* the graph, too */
    sink_state to = {&own->kept, right || wrong_part ? KEPT_BYTES : 100 + below(500)};
    yoke_sink sink = {sizeof sink, take_bytes, &to};
    own->kept.count = 0;
    yoke_status status = yoke_net_write(own->net, wrong_part ? (yoke_net_part)9 : part, &sink);
    if (right || wrong_part)
        judge_write(own, status, right, part);
    else
        EXPECT(status != YOKE_OK);
    if (status != YOKE_OK) own->kept.count = 0;
    own->kept.part = part;
    own->kept.step = own->step;
    check_slot(own, false);
    memcpy(own->kept.predicted, own->predicted, sizeof own->predicted);
}

/* Its own part of before, or that of another net of the same model; or a damaged one. */
static void read_part(slot *own) {
    doing = "read";
    const slot *from = &slots[below(NETS)];
    const kept_part *kept = &from->kept;
    if (kept->count == 0) return;
    bool cut = below(3) == 0, same = from == own;
    size_t count = cut ? below((unsigned)kept->count) : kept->count;
    if (count == 0) count = 1;
    yoke_status status = yoke_net_read(own->net, kept->part, kept->bytes, count);
    bool state = kept->part == YOKE_NET_STATE, graph = kept->part == YOKE_NET_GRAPH;
    if (same && !cut) judge(own, status, !graph, state);
    if (graph || cut || (state && own->inference)) EXPECT(status != YOKE_OK);
    if (status == YOKE_OK && state) own->step = kept->step;
    check_slot(own, status == YOKE_OK);
    if (status == YOKE_OK && same)
        EXPECT(memcmp(own->predicted, kept->predicted, sizeof kept->predicted) == 0);
}

static void save_and_load(slot *own) {
    doing = "save and load";
    yoke_status status = yoke_net_save(own->net, saved_path);
    judge(own, status, true, false);
    check_slot(own, false);
    if (status != YOKE_OK) return;
    judge(own, yoke_net_load(own->net, saved_path), true, false);
    check_slot(own, false); /* the same weights predict the same */
    EXPECT(yoke_net_load(own->net, "/nowhere/at/all") == YOKE_ERROR_MISSING);
    EXPECT(yoke_net_save(own->net, "/nowhere/at/all") != YOKE_OK);
    EXPECT(yoke_net_load(own->net, NULL) == YOKE_ERROR_ARGUMENT);
    check_slot(own, false);
}

static void ask_wrongly(slot *own) {
    doing = "query";
    yoke_net_info info = {.struct_size = sizeof info + 2000};
    EXPECT(yoke_net_query(own->net, &info) == YOKE_ERROR_ARGUMENT);
    EXPECT(yoke_net_query(own->net, NULL) == YOKE_ERROR_ARGUMENT);
    EXPECT(yoke_net_query(NULL, &info) == YOKE_ERROR_ARGUMENT);
    check_slot(own, false);
}

static void cancel_or_resume(slot *own) {
    doing = "cancel or resume";
    own->cancelled = below(3) == 0;
    (own->cancelled ? yoke_net_cancel : yoke_net_resume)(own->net);
    check_slot(own, false);
}

static void call_at_random(void) {
    static void (*const calls[])(slot * own) = {
        take_step,       take_step,  take_step, fit,           evaluate,    evaluate,
        predict_wrongly, write_part, read_part, save_and_load, ask_wrongly, cancel_or_resume};
    slot *own = &slots[below(NETS)];
    if (own->net == NULL)
        open_net(own);
    else if (below(25) == 0)
        close_net(own);
    else
        calls[below(sizeof calls / sizeof calls[0])](own);
}

static unsigned long number_of(const char *variable, unsigned long otherwise) {
    const char *text = getenv(variable);
    return text != NULL ? strtoul(text, NULL, 10) : otherwise;
}

static void random_calls_keep_what_is_promised(void **state) {
    (void)state;
    char path[] = "/tmp/yoke-random-calls-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    saved_path = path;
    rows = check_batch_make(ROWS, 1);
    for (int i = 0; i < ROWS; i++)
        bad_labels[i] = i % 2 == 0 ? CHECK_CLASSES : -1;
    random_state = number_of("YOKE_TEST_SEED", 1);
    for (unsigned long calls = number_of("YOKE_TEST_CALLS", CALLS); done < calls; done++)
        call_at_random();
    for (int i = 0; i < NETS; i++)
        close_net(&slots[i]);
    check_batch_free(&rows);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_calls_keep_what_is_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
