/* SPDX-License-Identifier: Apache-2.0 */
/* Weights and state of a net go to memory, to files, and back. */
#include <unistd.h>

#include "support/net_check.h"

typedef struct written {
    char *bytes;
    size_t count, room;
} written;

static yoke_status keep_bytes(void *payload, const void *bytes, size_t count) {
    written *to = payload;
    if (to->count + count > to->room)
        return yoke_error_raise(YOKE_ERROR_IO, "no room behind %zu bytes", to->count);
    memcpy(to->bytes + to->count, bytes, count);
    to->count += count;
    return YOKE_OK;
}

static written write_part(const rig *own, yoke_net_part part) {
    written to = {.bytes = malloc(1 << 20), .room = 1 << 20};
    yoke_sink sink = {.struct_size = sizeof sink, .write = keep_bytes, .payload = &to};
    EXPECT_OK(yoke_net_write(own->net, part, &sink));
    return to;
}

static void weights_go_to_memory_and_back(void **state) {
    (void)state;
    rig own, other;
    static float wanted[ROWS][CHECK_CLASSES], found[ROWS][CHECK_CLASSES];
    yoke_net_options reader = options_of(devices_of(2));
    reader.inference = true;
    reader.seed = 9;
    open_rig(&own, options_of(devices_of(1)));
    open_rig(&other, reader);
    predict(&other, found);
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    predict(&own, wanted);
    written to = write_part(&own, YOKE_NET_WEIGHTS);
    for (size_t cut = 0; cut < to.count; cut += to.count / 7)
        assert_int_not_equal(yoke_net_read(other.net, YOKE_NET_WEIGHTS, to.bytes, cut), YOKE_OK);
    predict(&other, found);
    assert_memory_not_equal(found, wanted, sizeof wanted);
    EXPECT_OK(yoke_net_read(other.net, YOKE_NET_WEIGHTS, to.bytes, to.count));
    predict(&other, found);
    assert_memory_equal(found, wanted, sizeof wanted);
    assert_int_equal(query(&other).weights, 2);
    EXPECT_OK(yoke_net_save(own.net, "net-test.safetensors"));
    reader.seed = 10;
    close_rig(&other);
    open_rig(&other, reader);
    EXPECT_OK(yoke_net_load(other.net, "net-test.safetensors"));
    predict(&other, found);
    assert_memory_equal(found, wanted, sizeof wanted);
    assert_int_equal(yoke_net_load(other.net, "no such file"), YOKE_ERROR_MISSING);
    unlink("net-test.safetensors");
    free(to.bytes);
    close_rig(&own);
    close_rig(&other);
}

static void a_state_goes_on_bit_for_bit(void **state) {
    (void)state;
    rig own, other;
    open_rig(&own, options_of(devices_of(2)));
    open_rig(&other, options_of(devices_of(1)));
    EXPECT_OK(yoke_net_fit(own.net, &own.inputs, &own.labels, NULL, NULL));
    written to = write_part(&own, YOKE_NET_STATE);
    EXPECT_OK(yoke_net_read(other.net, YOKE_NET_STATE, to.bytes, to.count));
    assert_true(hash_of(yoke_net_engine(own.net)) == hash_of(yoke_net_engine(other.net)));
    assert_int_equal(query(&other).step, query(&own).step);
    close_rig(&other);
    open_rig(&other, options_of(devices_of(2)));
    EXPECT_OK(yoke_net_read(other.net, YOKE_NET_STATE, to.bytes, to.count));
    own.inputs.shape[0] = own.labels.shape[0] = BATCH;
    EXPECT_OK(yoke_net_step(own.net, &own.inputs, &own.labels, 0.1, NULL));
    EXPECT_OK(yoke_net_step(other.net, &own.inputs, &own.labels, 0.1, NULL));
    assert_true(hash_of(yoke_net_engine(own.net)) == hash_of(yoke_net_engine(other.net)));
    free(to.bytes);
    close_rig(&own);
    close_rig(&other);
}

static void parts_that_cannot_go_are_refused(void **state) {
    (void)state;
    rig own;
    char few[100];
    written to = {.bytes = few, .room = sizeof few};
    yoke_sink sink = {.struct_size = sizeof sink, .write = keep_bytes, .payload = &to};
    yoke_net_options options = options_of(devices_of(1));
    options.inference = true;
    open_rig(&own, options);
    REFUSED(yoke_net_write(own.net, YOKE_NET_STATE, &sink), "only predicts");
    REFUSED(yoke_net_write(own.net, (yoke_net_part)7, &sink), "part 7");
    REFUSED(yoke_net_read(own.net, YOKE_NET_GRAPH, few, 10), "yoke_model_load_onnx");
    assert_int_equal(yoke_net_write(own.net, YOKE_NET_WEIGHTS, &sink), YOKE_ERROR_IO);
    assert_non_null(strstr(yoke_last_error(), "no room behind"));
    close_rig(&own);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_go_to_memory_and_back),
        cmocka_unit_test(a_state_goes_on_bit_for_bit),
        cmocka_unit_test(parts_that_cannot_go_are_refused),
    };
    return RUN_ON_DEVICES(tests, NULL, NULL);
}
