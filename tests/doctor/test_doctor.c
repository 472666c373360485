/* SPDX-License-Identifier: Apache-2.0 */
/* Reading traces of PyTorch's profiler: pieces of JSON, events, and a file that ends anywhere.
 * tests/cli/test_doctor.py reads real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "doctor/doctor.h"
#include "doctor/event_names.h"
#include "doctor/json_pieces.h"
#include "doctor/printable.h"

#define EXPECT_OK(call)                                                                            \
    do {                                                                                           \
        if ((call) != YOKE_OK) fail_msg("%s: %s", #call, yoke_last_error());                       \
    } while (0)

/* Two steps of 100 us: 20 of forward, 20 of backward, 10 of the optimizer. */
static const char trace[] =
    "{\"schemaVersion\": 1, \"distributedInfo\": {\"rank\": 1, \"world_size\": 3,"
    " \"backend\": \"gl\\u202eoo\"},\n"
    "\"traceEvents\": [\n"
#define STEP(base, number)                                                                         \
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#" number "\","              \
    "\"pid\":7,\"tid\":7,\"ts\":" base "00.0,\"dur\":100.0},\n"                                    \
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"DistributedDataParallel.forward\","      \
    "\"pid\":7,\"tid\":7,\"ts\":" base "10.25,\"dur\":20},\n"                                      \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":"                                                   \
    "\"autograd::engine::evaluate_function: AddmmBackward0\",\"pid\":7,\"tid\":7,"                 \
    "\"ts\":" base "40,\"dur\":20,\"args\":{}},\n"                                                 \
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"Optimizer.step#SGD.step\","              \
    "\"pid\":7,\"tid\":7,\"ts\":" base "70,\"dur\":10}"
    STEP("1", "0") ",\n" STEP("2", "1") "],\n\"traceName\": \"x\"}";

static void read_all(yoke_doctor *doctor, const char *text, size_t bytes) {
    yoke_doctor_options options = {.bytes = 8e6};
    EXPECT_OK(yoke_doctor_read_bytes(doctor, "trace", text, bytes, &options));
}

static void test_whole(void **state) {
    yoke_doctor doctor;
    (void)state;
    read_all(&doctor, trace, sizeof trace - 1);
    assert_int_equal(doctor.steps, 2);
    assert_int_equal(doctor.devices, 3);
    assert_int_equal(doctor.rank, 1);
    assert_int_equal(doctor.run, YOKE_DOCTOR_DDP);
    assert_string_equal(doctor.backend, "gl\\u202eoo");
    assert_string_equal(doctor.cut, "");
    assert_float_equal(doctor.step_ms, 0.1, 1e-9);
    assert_float_equal(doctor.stage_ms[YOKE_STAGE_FORWARD], 0.02, 1e-9);
    assert_float_equal(doctor.stage_ms[YOKE_STAGE_BACKWARD], 0.02, 1e-9);
    assert_float_equal(doctor.stage_ms[YOKE_STAGE_UPDATE], 0.01, 1e-9);
    assert_float_equal(doctor.stage_ms[YOKE_STAGE_PYTHON], 0.05, 1e-9);
    assert_float_equal(yoke_profile_step_ms(&doctor.profile), 0.1, 1e-9);
    assert_int_equal(yoke_profile_bytes(&doctor.profile), 8000000);
    yoke_doctor_clear(&doctor);
}

/* Wherever the text ends, it is read so far or refused, and what was read is right. */
static void test_cut_anywhere(void **state) {
    yoke_doctor doctor;
    yoke_doctor_options options = {0};
    int read = 0;
    (void)state;
    for (size_t bytes = 0; bytes < sizeof trace - 1; bytes++) {
        char *own = malloc(bytes + 1);
        assert_non_null(own);
        memcpy(own, trace, bytes);
        yoke_status status = yoke_doctor_read_bytes(&doctor, "cut", own, bytes, &options);
        if (status == YOKE_OK) {
            read++;
            assert_string_not_equal(doctor.cut, "");
            assert_in_range(doctor.steps, 1, 2);
            assert_float_equal(doctor.step_ms, 0.1, 1e-9);
            yoke_doctor_clear(&doctor);
        } else {
            assert_int_equal(status, YOKE_ERROR_DATA);
        }
        free(own);
    }
    assert_true(read > 500);
}

/* A value that is longer than the window of the reader, texts with brackets, and members behind. */
static void test_pieces(void **state) {
    static const char *const keys[] = {"a", "b", "long"};
    size_t length = 700000;
    char *text = malloc(length + 200);
    json_pieces pieces;
    json_piece piece;
    (void)state;
    assert_non_null(text);
    int used = sprintf(text, " {\"a\": \"}]\\\"\", \"b\":[1,{\"c\":[]}] ,\"long\":\"");
    memset(text + used, 'x', length);
    sprintf(text + used + length, "\", \"traceEvents\": [{\"d\":\"{\"} , {}], \"e\": -1.5e3}");
    EXPECT_OK(json_pieces_open_bytes(&pieces, text, strlen(text)));
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(json_pieces_next(&pieces, &piece));
        assert_int_equal(piece.kind, JSON_PIECE_MEMBER);
        assert_string_equal(piece.key, keys[i]);
    }
    assert_int_equal(piece.bytes, length + 2);
    EXPECT_OK(json_pieces_next(&pieces, &piece));
    assert_int_equal(piece.kind, JSON_PIECE_EVENT);
    assert_memory_equal(piece.text, "{\"d\":\"{\"}", piece.bytes);
    EXPECT_OK(json_pieces_next(&pieces, &piece));
    assert_int_equal(piece.kind, JSON_PIECE_EVENT);
    EXPECT_OK(json_pieces_next(&pieces, &piece));
    assert_int_equal(piece.kind, JSON_PIECE_MEMBER);
    assert_memory_equal(piece.text, "-1.5e3", piece.bytes);
    EXPECT_OK(json_pieces_next(&pieces, &piece));
    assert_int_equal(piece.kind, JSON_PIECE_END);
    json_pieces_close(&pieces);
    free(text);
}

static void test_event(void **state) {
    static const char text[] =
        "{ \"args\" : {\"Input Dims\": [[64, 256], [], \"\", [3]], \"Input type\": [\"long int\"],"
        "\"correlation\":77,\"nested\":{\"correlation\":5}}, \"ts\": 5030575770832.8536,"
        "\"dur\": 890.547 \n , \"ph\":\"X\", \"name\":\"aten::linear\", \"cat\":\"cpu_op\","
        "\"pid\":\"12\",\"tid\":-3 }";
    static const char *const bad[] = {"{\"ts\": \"soon\"}",
                                      "{\"dur\": -1}",
                                      "{\"ts\": 1e30}",
                                      "{\"ts\": 99999999999999999999}",
                                      "{\"a\" 1}",
                                      "[]",
                                      "{"};
    kineto_event event;
    kineto_arguments arguments;
    (void)state;
    assert_true(kineto_event_read(&event, text, sizeof text - 1));
    assert_int_equal(event.begin_ns, 5030575770832853);
    assert_int_equal(event.end_ns, 5030575770832853 + 890547);
    assert_int_equal(event.process, 12);
    assert_int_equal(event.thread, -3);
    assert_int_equal(doctor_name_of(&event)->kind, DOCTOR_OPERATION);
    assert_true(doctor_name_of(&event)->marks & DOCTOR_ROWS);
    kineto_arguments_read(&arguments, event.arguments);
    assert_int_equal(arguments.correlation, 77);
    assert_true(arguments.operands[0].rows == 64 && arguments.operands[0].elements == 64 * 256);
    assert_true(arguments.element_bytes == 8);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(kineto_event_read(&event, bad[i], strlen(bad[i])));
}

/* Names of NCCL in several versions; a reduce-scatter is no reduce. */
static void test_names(void **state) {
    static const struct {
        const char *category, *name;
        yoke_stage stage;
    } rows[] = {
        {"kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", YOKE_STAGE_ALL_REDUCE},
        {"kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", YOKE_STAGE_ALL_REDUCE},
        {"kernel", "ncclDevKernel_Broadcast_RING_LL", YOKE_STAGE_REPLICATE},
        {"Kernel", "ncclBroadcastRingLLKernel_copy_i8(ncclColl)", YOKE_STAGE_REPLICATE},
        {"kernel", "ncclDevKernel_Reduce_Sum_f32_RING_LL", YOKE_STAGE_REDUCE},
        {"kernel", "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", YOKE_STAGE_ALL_REDUCE},
        {"gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", YOKE_STAGE_LOAD},
        {"cpu_op", "ReduceAddCoalesced", YOKE_STAGE_REDUCE},
        {"cpu_op", "aten::nll_loss_backward", YOKE_STAGE_COUNT},
        {"cpu_op", "aten::nll_loss", YOKE_STAGE_LOSS}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        kineto_event event = {.category = {rows[i].category, strlen(rows[i].category)},
                              .name = {rows[i].name, strlen(rows[i].name)}};
        const doctor_name *found = doctor_name_of(&event);
        assert_non_null(found);
        assert_int_equal(found->stage, rows[i].stage);
    }
    kineto_event gpu_mark = {.category = {"gpu_user_annotation", 19},
                             .name = {"ProfilerStep#1", 14}};
    assert_null(doctor_name_of(&gpu_mark));
}

static void test_printable(void **state) {
    char text[64], small[8];
    (void)state;
    doctor_copy_printable(text, sizeof text, "a\x1b\xe2\x80\xae\xc3\xa4\xff<");
    assert_string_equal(text, "a\\u001b\\u202e\xc3\xa4\\u00ff<");
    doctor_copy_printable(small, sizeof small, "abc\x1b\x1b");
    assert_string_equal(small, "abc");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),  cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_pieces), cmocka_unit_test(test_event),
        cmocka_unit_test(test_names),  cmocka_unit_test(test_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
