/* SPDX-License-Identifier: Apache-2.0 */
/* Predictions have the weights that they should, callbacks may ask and end, and other threads
 * cancel. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/net_check.h"

static void predictions_follow_the_weights(void **state) {
    (void)state;
    rig own;
    static float before[ROWS][CHECK_CLASSES], after[ROWS][CHECK_CLASSES];
    static float wanted[ROWS][CHECK_CLASSES];
    open_rig(&own, options_of(devices_of(2)));
    for (int round = 0; round < 3; round++) {
        yoke_batch batch = own.rows.batch;
        predict(&own, before);
        own.inputs.shape[0] = own.labels.shape[0] = BATCH;
        EXPECT_OK(yoke_net_step(own.net, &own.inputs, &own.labels, 0.1, NULL));
        own.inputs.shape[0] = own.labels.shape[0] = ROWS;
        predict(&own, after);
        assert_memory_not_equal(before, after, sizeof before);
        for (int row = 0; row < ROWS; row += BATCH) {
            batch.rows = ROWS - row < BATCH ? ROWS - row : BATCH;
            batch.inputs = own.rows.inputs + row * CHECK_ROW;
            EXPECT_OK(
                yoke_data_parallel_forward(yoke_net_engine(own.net), &batch, false, wanted[row]));
        }
        for (int row = 0; row < ROWS; row++)
            for (int c = 0; c < CHECK_CLASSES; c++)
                assert_float_equal((double)after[row][c], (double)wanted[row][c], 1e-4);
    }
    close_rig(&own);
}

/* Callbacks and other threads. */

typedef struct listener {
    rig *own;
    int calls, most;
    yoke_status nested;
} listener;

static bool hear(void *payload, const yoke_net_info *info) {
    listener *heard = payload;
    yoke_net_info asked = query(heard->own);
    heard->calls++;
    assert_int_equal(asked.step, info->step);
    assert_int_equal(asked.activity, YOKE_NET_FITTING);
    heard->nested =
        yoke_net_fit(heard->own->net, &heard->own->inputs, &heard->own->labels, NULL, NULL);
    return info->step < (uint64_t)heard->most;
}

static void progress_may_end_a_fit(void **state) {
    (void)state;
    rig own;
    listener heard = {.own = &own, .most = 5};
    yoke_fit_options fit = {
        .struct_size = sizeof fit, .epochs = 100, .progress = hear, .payload = &heard};
    yoke_fit_result result = {.struct_size = sizeof result};
    open_rig(&own, options_of(devices_of(2)));
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, &result));
    assert_int_equal(result.steps, 5);
    assert_int_equal(heard.nested, YOKE_ERROR_ARGUMENT);
    assert_in_range(heard.calls, 6, 7); /* steps and ends of epochs */
    assert_int_equal(query(&own).activity, YOKE_NET_IDLE);
    close_rig(&own);
}

static void *cancel_after_steps(void *payload) {
    const rig *own = payload;
    while (query(own).step < 3)
        usleep(100);
    yoke_net_cancel(own->net);
    return NULL;
}

static void another_thread_cancels_a_fit(void **state) {
    (void)state;
    rig own;
    pthread_t thread;
    yoke_fit_options fit = {.struct_size = sizeof fit, .epochs = 1000000};
    yoke_fit_result result = {.struct_size = sizeof result};
    open_rig(&own, options_of(devices_of(2)));
    assert_int_equal(pthread_create(&thread, NULL, cancel_after_steps, &own), 0);
    assert_int_equal(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, &result),
                     YOKE_ERROR_CANCELLED);
    pthread_join(thread, NULL);
    assert_true(result.steps >= 3 && result.steps == query(&own).step);
    yoke_step_result counts = {.struct_size = sizeof counts};
    assert_int_equal(yoke_net_evaluate(own.net, &own.inputs, &own.labels, &counts),
                     YOKE_ERROR_CANCELLED);
    yoke_net_resume(own.net);
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    close_rig(&own);
}

static void opening_is_cancelled(void **state) {
    (void)state;
    yoke_cancellation cancellation = {0};
    yoke_net_options options = options_of(devices_of(1));
    yoke_model *model = check_model(true, 0);
    yoke_net *net = NULL;
    options.cancellation = &cancellation;
    yoke_cancel(&cancellation);
    assert_int_equal(yoke_net_open(&net, model, &options), YOKE_ERROR_CANCELLED);
    assert_null(net);
    yoke_cancellation_reset(&cancellation);
    EXPECT_OK(yoke_net_open(&net, model, &options));
    yoke_net_close(net);
    yoke_model_destroy(model);
}

typedef struct log_lines {
    int lines[3];
} log_lines;

static void keep_line(void *payload, yoke_log_level level, const char *line) {
    log_lines *kept = payload;
    assert_non_null(line);
    assert_null(strchr(line, '\n'));
    kept->lines[level]++;
}

static void the_log_says_what_happens(void **state) {
    (void)state;
    rig own;
    log_lines kept = {{0}};
    yoke_net_options options = options_of(devices_of(2));
    options.log = keep_line;
    options.payload = &kept;
    open_rig(&own, options);
    assert_int_equal(kept.lines[YOKE_LOG_INFO], 2); /* devices */
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    assert_int_equal(kept.lines[YOKE_LOG_INFO], 3);
    assert_int_equal(kept.lines[YOKE_LOG_WARNING], 0);
    close_rig(&own);
}

/* A thread predicts while another fits: each prediction is that of one epoch's weights. */
typedef struct predicting {
    const rig *own;
    atomic_bool ends;
    int predictions;
} predicting;

static void *keep_predicting(void *payload) {
    predicting *self = payload;
    static _Thread_local float outputs[ROWS][CHECK_CLASSES];
    while (!atomic_load(&self->ends)) {
        predict(self->own, outputs);
        assert_true(isfinite(outputs[0][0]) && isfinite(outputs[ROWS - 1][CHECK_CLASSES - 1]));
        self->predictions++;
    }
    return NULL;
}

static void threads_predict_while_one_fits(void **state) {
    (void)state;
    rig own;
    pthread_t threads[3];
    predicting selves[3];
    yoke_fit_options fit = {.struct_size = sizeof fit, .epochs = 30};
    open_rig(&own, options_of(devices_of(2)));
    for (int i = 0; i < 3; i++) {
        selves[i] = (predicting){.own = &own};
        assert_int_equal(pthread_create(&threads[i], NULL, keep_predicting, &selves[i]), 0);
    }
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, &fit, NULL));
    for (int i = 0; i < 3; i++) {
        atomic_store(&selves[i].ends, true);
        pthread_join(threads[i], NULL);
        assert_true(selves[i].predictions > 0);
    }
    close_rig(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions_follow_the_weights),
        cmocka_unit_test(progress_may_end_a_fit),
        cmocka_unit_test(another_thread_cancels_a_fit),
        cmocka_unit_test(opening_is_cancelled),
        cmocka_unit_test(the_log_says_what_happens),
        cmocka_unit_test(threads_predict_while_one_fits),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
