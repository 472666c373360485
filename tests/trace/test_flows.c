/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a timeline: which bucket a span worked on, who a wait waited for, arrows that viewers
 * accept, and the traces of several processes as one. */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/base.h"
#include "trace/spans.h"

enum { LANES = 2, STEP = 7 };

static yoke_trace *start(bool queued) {
    static const char *const lanes[] = {"cpu:0", "cpu:1"};
    yoke_trace *trace = NULL;
    yoke_trace_options options = {
        .lanes = lanes, .lane_count = LANES, .capacity = 64, .queued = queued};
    if (yoke_trace_create(&trace, &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    return trace;
}

static yoke_span span_of(yoke_stage stage, int bucket, uint64_t begin_us, uint64_t end_us) {
    return (yoke_span){.begin_ns = begin_us * 1000,
                       .end_ns = end_us * 1000,
                       .step = STEP,
                       .stage = stage,
                       .bucket = bucket};
}

static void put(yoke_trace *trace, int lane, yoke_stage stage, int bucket, uint64_t begin_us,
                uint64_t end_us) {
    yoke_span span = span_of(stage, bucket, begin_us, end_us);
    yoke_trace_past_span(trace, lane, &span);
}

static void put_wait(yoke_trace *trace, int lane, yoke_stage awaits, int bucket, uint64_t begin_us,
                     uint64_t end_us) {
    yoke_span span = span_of(YOKE_STAGE_WAIT, bucket, begin_us, end_us);
    span.awaits = awaits;
    yoke_trace_past_span(trace, lane, &span);
}

/* Lane 1 is slow: lane 0 waits for its gradient of bucket 0. */
static yoke_trace *slow_lane_1(void) {
    yoke_trace *trace = start(false);
    put(trace, 0, YOKE_STAGE_STEP, YOKE_NO_BUCKET, 0, 1000);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 10, 100);
    put(trace, 1, YOKE_STAGE_FORWARD, YOKE_NO_BUCKET, 10, 200);
    put(trace, 1, YOKE_STAGE_BACKWARD, 0, 200, 500);
    put_wait(trace, 0, YOKE_STAGE_BACKWARD, 0, 100, 510);
    put(trace, 1, YOKE_STAGE_EXCHANGE, 0, 500, 505);
    put(trace, 0, YOKE_STAGE_EXCHANGE, 0, 510, 600);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 600, 700);
    return trace;
}

/* Reading. */

static json_t *read_file(const char *path) {
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    unlink(path);
    if (root == NULL) fail_msg("%s at byte %d", error.text, error.position);
    return root;
}

static json_t *write_and_read(const yoke_trace_process *processes, int count) {
    char path[] = "/tmp/yoke-flows-XXXXXX";
    close(mkstemp(path));
    if (yoke_trace_write_processes(processes, count, path) != YOKE_OK)
        fail_msg("%s", yoke_last_error());
    return read_file(path);
}

static json_t *write_alone(const yoke_trace *trace) {
    return write_and_read(&(yoke_trace_process){.rank = -1, .trace = trace}, 1);
}

static const char *text_of(const json_t *event, const char *key) {
    return json_string_value(json_object_get(event, key));
}

static double number_of(const json_t *event, const char *key) {
    return json_number_value(json_object_get(event, key));
}

static const json_t *argument(const json_t *event, const char *key) {
    return json_object_get(json_object_get(event, "args"), key);
}

/* The n-th event of a phase and a name on a thread; NULL: there are fewer. */
static const json_t *find(const json_t *root, const char *phase, const char *name, int thread,
                          int n) {
    const json_t *events = json_object_get(root, "traceEvents");
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text_of(event, "ph"), phase) != 0 || strcmp(text_of(event, "name"), name) != 0)
            continue;
        if (number_of(event, "tid") == thread && n-- == 0) return event;
    }
    return NULL;
}

/* The innermost span of the event's thread that is open at its time, as viewers bind a flow. */
static const json_t *enclosing(const json_t *root, const json_t *flow) {
    const json_t *events = json_object_get(root, "traceEvents"), *found = NULL;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        double begin = number_of(event, "ts"), at = number_of(flow, "ts");
        if (text_of(event, "ph")[0] != 'X' || number_of(event, "pid") != number_of(flow, "pid") ||
            number_of(event, "tid") != number_of(flow, "tid"))
            continue;
        if (begin > at || at >= begin + number_of(event, "dur")) continue;
        if (found == NULL || number_of(event, "dur") < number_of(found, "dur")) found = event;
    }
    return found;
}

/* "cat: tid/stage tid/stage ..." of flow `id`; "" where there is none. Checks the format's rules on
 * the way. */
static void describe_flow(const json_t *root, int id, char *text, size_t size) {
    const json_t *events = json_object_get(root, "traceEvents");
    const char *name = NULL, *last = "";
    double at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strchr("stf", text_of(event, "ph")[0]) == NULL || number_of(event, "id") != id)
            continue;
        const json_t *span = enclosing(root, event);
        assert_non_null(span);
        if (name == NULL) {
            assert_string_equal(text_of(event, "ph"), "s");
            snprintf(text, size, "%s:", text_of(event, "cat"));
        } else {
            assert_true(text_of(event, "ph")[0] != 's' && last[0] != 'f');
            assert_string_equal(text_of(event, "name"), name);
            assert_string_equal(text_of(event, "bp"), "e");
        }
        assert_true(number_of(event, "ts") >= at);
        at = number_of(event, "ts");
        name = text_of(event, "name");
        last = text_of(event, "ph");
        size_t used = strlen(text);
        snprintf(text + used, size - used, " %g/%s", number_of(event, "tid"),
                 text_of(span, "name"));
    }
    assert_true(name == NULL || last[0] == 'f');
}

static void expect_flows(const json_t *root, const char *const *expected) {
    char text[256];
    int id = 1;
    for (;; id++) {
        describe_flow(root, id, text, sizeof text);
        if (text[0] == '\0') break;
        if (expected[id - 1] == NULL) fail_msg("flow %d is %s: too many", id, text);
        assert_string_equal(text, expected[id - 1]);
    }
    if (expected[id - 1] != NULL) fail_msg("there is no flow %s", expected[id - 1]);
}

/* Tests. */

static void spans_carry_their_bucket_or_none(void **state) {
    (void)state;
    yoke_trace *trace = slow_lane_1();
    json_t *root = write_alone(trace);
    assert_int_equal(json_integer_value(argument(find(root, "X", "backward", 2, 0), "bucket")), 0);
    assert_null(argument(find(root, "X", "forward", 2, 0), "bucket"));
    assert_null(argument(find(root, "X", "step", 1, 0), "bucket"));
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_wait_names_the_lane_and_the_work_that_ended_it(void **state) {
    (void)state;
    yoke_trace *trace = slow_lane_1();
    json_t *root = write_alone(trace);
    const json_t *wait = find(root, "X", "wait", 1, 0);
    /* Not lane 1's exchange, which ended later: the wait was for a gradient. */
    assert_string_equal(json_string_value(argument(wait, "cause")), "cpu:1");
    assert_string_equal(json_string_value(argument(wait, "cause_stage")), "backward");
    assert_int_equal(json_integer_value(argument(wait, "cause_bucket")), 0);
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_wait_for_anything_names_what_ended_last(void **state) {
    (void)state;
    yoke_trace *trace = slow_lane_1();
    put_wait(trace, 1, YOKE_STAGE_LOAD, YOKE_NO_BUCKET, 505, 650);
    json_t *root = write_alone(trace);
    const json_t *wait = find(root, "X", "wait", 2, 0);
    assert_string_equal(json_string_value(argument(wait, "cause")), "cpu:0");
    assert_string_equal(json_string_value(argument(wait, "cause_stage")), "exchange");
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void a_wait_for_a_link_has_no_cause(void **state) {
    (void)state;
    yoke_trace *trace = start(false);
    put(trace, 1, YOKE_STAGE_EXCHANGE, 0, 0, 150);
    put_wait(trace, 0, YOKE_STAGE_COUNT, YOKE_NO_BUCKET, 100, 5000);
    json_t *root = write_alone(trace);
    assert_null(argument(find(root, "X", "wait", 1, 0), "cause"));
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void what_ended_before_a_wait_began_is_not_its_cause(void **state) {
    (void)state;
    yoke_trace *trace = start(false);
    put(trace, 1, YOKE_STAGE_BACKWARD, 0, 10, 90);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 10, 100);
    put_wait(trace, 0, YOKE_STAGE_BACKWARD, 0, 100, 300); /* the bytes are on their way */
    json_t *root = write_alone(trace);
    assert_null(argument(find(root, "X", "wait", 1, 0), "cause"));
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void arrows_follow_a_gradient_to_its_update_and_a_wait_to_its_cause(void **state) {
    (void)state;
    yoke_trace *trace = slow_lane_1();
    json_t *root = write_alone(trace);
    expect_flows(root, (const char *const[]){
                           "gradient: 1/backward 1/exchange 1/update",
                           "gradient: 2/backward 1/exchange", /* the last gradient: lane 0 waited */
                           "gradient: 2/backward 2/exchange", "wait: 2/backward 1/wait", NULL});
    json_decref(root);
    yoke_trace_destroy(trace);
}

static void arrows_lead_from_the_update_to_the_copies_of_the_weights(void **state) {
    (void)state;
    yoke_trace *trace = start(false);
    put(trace, 0, YOKE_STAGE_UPDATE, 0, 10, 20);
    put(trace, 0, YOKE_STAGE_UPDATE, 1, 20, 30);
    for (int lane = 0; lane < LANES; lane++) {
        yoke_span copy = span_of(YOKE_STAGE_REPLICATE, YOKE_NO_BUCKET, 50, 60);
        copy.step = STEP + 1;
        yoke_trace_past_span(trace, lane, &copy);
    }
    json_t *root = write_alone(trace);
    expect_flows(root, (const char *const[]){"publish: 1/update 1/replicate",
                                             "publish: 1/update 2/replicate", NULL});
    json_decref(root);
    yoke_trace_destroy(trace);
}

/* A GPU's exchange runs beside its backward: on one thread they would neither nest nor follow each
 * other. */
static void what_overlaps_on_a_device_has_threads_of_its_own(void **state) {
    (void)state;
    yoke_trace *trace = start(true);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 0, 100);
    put(trace, 1, YOKE_STAGE_BACKWARD, 0, 0, 90);
    put(trace, 0, YOKE_STAGE_BACKWARD, 1, 100, 200);
    yoke_span exchange = span_of(YOKE_STAGE_EXCHANGE, 0, 110, 250);
    exchange.track = YOKE_TRACK_COMMUNICATION;
    yoke_trace_past_span(trace, 0, &exchange);
    yoke_trace_span(trace, 0, YOKE_STAGE_GATHER, STEP, yoke_trace_now(), 0);
    json_t *root = write_alone(trace);
    assert_null(find(root, "X", "exchange", 1, 0));
    const json_t *found = find(root, "X", "exchange", 1 + LANES * YOKE_TRACK_COMMUNICATION, 0);
    const json_t *name = find(root, "M", "thread_name", 1 + LANES * YOKE_TRACK_COMMUNICATION, 0);
    assert_non_null(found);
    assert_string_equal(json_string_value(argument(name, "name")), "cpu:0 · communication");
    assert_non_null(find(root, "X", "gather", 1 + LANES * YOKE_TRACK_HOST, 0));
    assert_null(find(root, "M", "thread_name", 1 + LANES * YOKE_TRACK_COPY, 0));
    /* Lane 1 has no exchange of its own: the root's takes its gradient. */
    expect_flows(root, (const char *const[]){"gradient: 1/backward 5/exchange",
                                             "gradient: 2/backward 5/exchange", NULL});
    json_decref(root);
    yoke_trace_destroy(trace);
}

/* The spans of a GPU's stream, measured to half a microsecond. */
static void a_span_that_reaches_into_the_next_one_ends_there(void **state) {
    (void)state;
    yoke_trace *trace = start(false);
    put(trace, 0, YOKE_STAGE_STEP, YOKE_NO_BUCKET, 0, 300);
    put(trace, 0, YOKE_STAGE_FORWARD, YOKE_NO_BUCKET, 0, 101);
    put(trace, 0, YOKE_STAGE_BACKWARD, 0, 100, 200);
    put(trace, 0, YOKE_STAGE_BACKWARD, 1, 200, 300);
    put(trace, 1, YOKE_STAGE_FORWARD, YOKE_NO_BUCKET, 50, 150); /* another lane's affair */
    json_t *root = write_alone(trace);
    assert_true(number_of(find(root, "X", "forward", 1, 0), "dur") == 100);
    assert_true(number_of(find(root, "X", "backward", 1, 0), "dur") == 100);
    assert_true(number_of(find(root, "X", "backward", 1, 1), "dur") == 100);
    assert_true(number_of(find(root, "X", "step", 1, 0), "dur") == 300);
    assert_true(number_of(find(root, "X", "forward", 2, 0), "dur") == 100);
    json_decref(root);
    yoke_trace_destroy(trace);
}

/* Two ranks of one device each; the clock of rank 1 is an hour ahead. */
static void ranks_are_processes_of_one_file_on_one_clock(void **state) {
    (void)state;
    static const char *const lanes[] = {"cpu:0"};
    const int64_t hour_us = 3600000000;
    yoke_trace_options options = {.lanes = lanes, .lane_count = 1, .capacity = 16};
    yoke_trace *ranks[2];
    for (int rank = 0; rank < 2; rank++)
        if (yoke_trace_create(&ranks[rank], &options) != YOKE_OK) fail_msg("%s", yoke_last_error());
    put(ranks[0], 0, YOKE_STAGE_BACKWARD, 0, 10, 100);
    put_wait(ranks[0], 0, YOKE_STAGE_BACKWARD, 0, 100, 310);
    put(ranks[1], 0, YOKE_STAGE_BACKWARD, 0, (uint64_t)hour_us + 10, (uint64_t)hour_us + 300);
    json_t *root = write_and_read(
        (yoke_trace_process[]){{.rank = 0, .trace = ranks[0]},
                               {.rank = 1, .trace = ranks[1], .shift_ns = -hour_us * 1000}},
        2);
    const json_t *wait = find(root, "X", "wait", 1, 0), *slow = find(root, "X", "backward", 1, 1);
    assert_true(number_of(wait, "pid") == 1);
    assert_string_equal(json_string_value(argument(wait, "cause")), "rank 1 · cpu:0");
    assert_true(number_of(slow, "pid") == 2 && number_of(slow, "ts") == 0);
    assert_string_equal(json_string_value(argument(find(root, "M", "thread_name", 1, 1), "name")),
                        "rank 1 · cpu:0");
    json_decref(root);
    yoke_trace_destroy(ranks[0]);
    yoke_trace_destroy(ranks[1]);
}

static int count_flows(const json_t *root) {
    char text[256] = "some";
    int count = -1;
    for (; text[0] != '\0'; count++)
        describe_flow(root, count + 2, text, sizeof text);
    return count;
}

/* A run that lost two devices: its second engine does the step again, which changes no arrow of the
 * first one, and its third one does none. */
static void engines_of_a_run_are_apart_and_marks_say_why(void **state) {
    (void)state;
    const int64_t ms = 1000000;
    const yoke_trace_mark marks[] = {{.at_ns = 1 * ms, .text = "lost before the first span"},
                                     {.at_ns = 15 * ms, .text = "lost \"cpu:2\" after step 7"}};
    yoke_trace *trace = slow_lane_1(), *empty = start(false);
    yoke_span copy = span_of(YOKE_STAGE_REPLICATE, YOKE_NO_BUCKET, 1100, 1200);
    copy.step = STEP + 1;
    yoke_trace_past_span(trace, 1, &copy);
    json_t *alone = write_alone(trace);
    json_t *root = write_and_read(
        (yoke_trace_process[]){
            {.rank = -1, .trace = trace, .shift_ns = 10 * ms},
            {.rank = -1, .trace = trace, .shift_ns = 20 * ms, .engine = 1},
            {.rank = -1, .trace = empty, .engine = 2, .marks = marks, .mark_count = 2}},
        3);
    int flows = count_flows(alone);
    assert_int_equal(flows, 5);
    assert_int_equal(count_flows(root), 2 * flows);
    for (int id = 1; id <= 2 * flows; id++) {
        char one[256], other[256];
        describe_flow(alone, id > flows ? id - flows : id, one, sizeof one);
        describe_flow(root, id, other, sizeof other);
        assert_string_equal(other, one);
    }
    for (int engine = 0; engine < 3; engine++) {
        const json_t *number = argument(find(root, "M", "thread_name", 2, engine), "engine");
        assert_int_equal(json_integer_value(number), engine);
        assert_true((number == NULL) == (engine == 0));
    }
    for (int i = 0; i < 2; i++) {
        const json_t *mark = find(root, "i", marks[i].text, 1, 0);
        assert_non_null(mark);
        assert_string_equal(text_of(mark, "s"), "g");
        assert_string_equal(text_of(mark, "cat"), "run");
        assert_true(number_of(mark, "ts") == 5000 * i && number_of(mark, "pid") == 3);
    }
    json_decref(root);
    json_decref(alone);
    yoke_trace_destroy(empty);
    yoke_trace_destroy(trace);
}

static void a_packed_trace_unpacks_as_it_was(void **state) {
    (void)state;
    yoke_trace *trace = slow_lane_1(), *copy = NULL;
    for (int i = 0; i < 100; i++) /* lane 1's ring is full, and begins in its middle */
        put(trace, 1, YOKE_STAGE_LOSS, i, (uint64_t)i, (uint64_t)i + 1);
    int64_t *words = NULL;
    size_t count = 0;
    assert_int_equal(yoke_trace_pack(trace, &words, &count), YOKE_OK);
    assert_int_equal(yoke_trace_unpack(&copy, words, count), YOKE_OK);
    for (int lane = 0; lane < LANES; lane++) {
        assert_string_equal(copy->lanes[lane].name, trace->lanes[lane].name);
        assert_int_equal(yoke_lane_count(copy, lane), yoke_lane_count(trace, lane));
        for (uint32_t i = 0; i < yoke_lane_count(trace, lane); i++)
            assert_memory_equal(yoke_lane_span(copy, lane, i), yoke_lane_span(trace, lane, i),
                                sizeof(yoke_span));
    }
    yoke_trace_destroy(copy);
    for (size_t less = 0; less < count; less++)
        assert_int_equal(yoke_trace_unpack(&copy, words, less), YOKE_ERROR_DATA);
    words[0] = 1 << 30;
    assert_int_equal(yoke_trace_unpack(&copy, words, count), YOKE_ERROR_DATA);
    free(words);
    yoke_trace_destroy(trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spans_carry_their_bucket_or_none),
        cmocka_unit_test(a_wait_names_the_lane_and_the_work_that_ended_it),
        cmocka_unit_test(a_wait_for_anything_names_what_ended_last),
        cmocka_unit_test(a_wait_for_a_link_has_no_cause),
        cmocka_unit_test(what_ended_before_a_wait_began_is_not_its_cause),
        cmocka_unit_test(arrows_follow_a_gradient_to_its_update_and_a_wait_to_its_cause),
        cmocka_unit_test(arrows_lead_from_the_update_to_the_copies_of_the_weights),
        cmocka_unit_test(what_overlaps_on_a_device_has_threads_of_its_own),
        cmocka_unit_test(a_span_that_reaches_into_the_next_one_ends_there),
        cmocka_unit_test(ranks_are_processes_of_one_file_on_one_clock),
        cmocka_unit_test(engines_of_a_run_are_apart_and_marks_say_why),
        cmocka_unit_test(a_packed_trace_unpacks_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
