/* SPDX-License-Identifier: Apache-2.0 */
/* The flat buffers: DDP's buckets, the order of offsets, alignment. */
#include "replica_rig.h"

static void assert_buckets(const size_t *bytes, int count, const size_t *limits, int limit_count,
                           const int *expected) {
    int bucket[16];
    int buckets = yoke_bucket_assign(bytes, count, limits, limit_count, bucket);
    assert_int_equal(buckets, count == 0 ? 0 : expected[count - 1] + 1);
    for (int i = 0; i < count; i++)
        assert_int_equal(bucket[i], expected[i]);
}

/* PyTorch's ComputeBucketAssignmentTest, the vectors of one dtype: element counts times 4 bytes. */
static void buckets_are_pytorchs(void **state) {
    (void)state;
    static const size_t same_limit[] = {400, 800, 400, 200};
    assert_buckets(same_limit, 4, (const size_t[]){400}, 1, (const int[]){0, 1, 2, 3});
    static const size_t growing[] = {40, 40, 40, 40};
    assert_buckets(growing, 4, (const size_t[]){40, 80}, 2, (const int[]){0, 1, 1, 2});
}

static void a_bucket_closes_when_it_reaches_its_limit(void **state) {
    (void)state;
    static const size_t bytes[] = {10, 10, 100, 1, 1};
    assert_buckets(bytes, 5, (const size_t[]){20, 50}, 2, (const int[]){0, 0, 1, 2, 2});
    assert_buckets(bytes, 5, (const size_t[]){1000}, 1, (const int[]){0, 0, 0, 0, 0});
    assert_buckets(bytes, 0, (const size_t[]){1000}, 1, NULL);
}

static yoke_model *shared_pair(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "pair", (yoke_shape){6, 1, 1, true}));
    yoke_linear_options options = {.struct_size = sizeof options, .out_features = 6};
    yoke_value value = yoke_model_input(model);
    static const char *const names[][2] = {
        {"a", NULL}, {"b", NULL}, {"a2", "a"}, {"c", NULL}, {"b2", "b"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        options.name = names[i][0];
        options.shared_with = names[i][1];
        value = yoke_linear(model, value, &options);
    }
    assert_ok(yoke_model_finish(model, value, NULL));
    return model;
}

/* c is done first; b's last contribution comes from layer b itself, before a's. */
static void offsets_follow_the_last_contribution(void **state) {
    (void)state;
    static const char *const expected[] = {"c.bias",   "c.weight", "b.bias",
                                           "b.weight", "a.bias",   "a.weight"};
    struct rig rig;
    rig_create(&rig, shared_pair(), 2, 1);
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    assert_int_equal(flat->parameter_count, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(rig.model->tensors[flat->parameters[i].tensor].name, expected[i]);
    assert_step_near(&rig, 1e-5);
    rig_destroy(&rig);
}

static void parameters_tile_the_buffer_in_cache_lines(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 8, 8, false}, 10, NULL));
    struct rig rig;
    rig_create(&rig, model, 2, 1);
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    size_t end = 0;
    for (int i = 0; i < flat->parameter_count; i++) {
        const yoke_parameter *parameter = &flat->parameters[i];
        assert_int_equal(parameter->offset, end);
        assert_int_equal(parameter->offset % 16, 0);
        assert_true(parameter->elements * sizeof(float) >= parameter->layout.bytes);
        assert_true(parameter->layout.bytes >=
                    model->tensors[parameter->tensor].count * sizeof(float));
        end += parameter->elements;
    }
    assert_int_equal(end, flat->elements);
    assert_string_equal(model->tensors[flat->parameters[0].tensor].name, "fc.bias");
    assert_string_equal(model->tensors[flat->parameters[flat->parameter_count - 1].tensor].name,
                        "conv1.weight");
    rig_destroy(&rig);
}

/* rig_options cuts at 2,048 bytes first and 8,192 bytes after. */
static void buckets_tile_the_buffer_and_keep_their_limits(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 8, 8, false}, 10, NULL));
    struct rig rig;
    rig_create(&rig, model, 2, 1);
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    size_t end = 0;
    for (int i = 0; i < flat->bucket_count; i++) {
        size_t limit = i == 0 ? 2048 : 8192, bytes = flat->buckets[i].elements * sizeof(float);
        assert_int_equal(flat->buckets[i].offset, end);
        assert_true(bytes >= limit || i == flat->bucket_count - 1);
        end += flat->buckets[i].elements;
    }
    assert_int_equal(end, flat->elements);
    rig_destroy(&rig);
}

/* Behind all buckets, tile by tile, in the order of backward. */
static void frozen_parameters_lie_behind_the_buckets(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, "resnet20", (yoke_shape){3, 8, 8, false}, 10, NULL));
    bool *frozen = calloc((size_t)model->tensor_count, sizeof *frozen);
    int trainable = 0;
    for (int i = 0; i < model->tensor_count; i++) {
        frozen[i] = model->tensors[i].trainable && i % 3 == 0;
        trainable += model->tensors[i].trainable && !frozen[i];
    }
    struct rig rig = {
        .model = model, .rows = 2, .algorithm = YOKE_ALGORITHM_DIRECT, .frozen = frozen};
    rig_devices(&rig);
    rig_replica(&rig, 1);
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    const yoke_bucket *last = &flat->buckets[flat->bucket_count - 1];
    assert_int_equal(flat->trainable_count, trainable);
    assert_int_equal(last->offset + last->elements, flat->trainable_elements);
    size_t end = 0;
    for (int i = 0; i < flat->parameter_count; i++) {
        const yoke_parameter *parameter = &flat->parameters[i];
        assert_int_equal(parameter->frozen, i >= trainable);
        assert_int_equal(parameter->frozen, frozen[parameter->tensor]);
        if (i == trainable) assert_int_equal(end, flat->trainable_elements);
        assert_int_equal(parameter->offset, end);
        end += parameter->elements;
    }
    assert_int_equal(end, flat->elements);
    rig_destroy(&rig);
    free(frozen);
}

static void expect_segments(const yoke_model *model, const yoke_flat *flat) {
    yoke_model_segment segments[8];
    int count = 0;
    assert_ok(yoke_model_segments(model, 0, segments, 8, &count));
    assert_int_equal(count, flat->bucket_count);
    for (int s = 0; s < count; s++)
        assert_int_equal(segments[s].bytes, flat->buckets[s].elements * sizeof(float));
    assert_true(segments[0].multiplications == 1040 * 10 + 1040 * 1040);
    assert_true(segments[1].multiplications == 784 * 1040);
    assert_int_equal(yoke_model_segments(model, 0, NULL, 8, &count), YOKE_ERROR_ARGUMENT);
}

static void buckets_default_to_one_and_four_mebibytes_also_without_a_device(void **state) {
    (void)state;
    yoke_model *model = NULL;
    assert_ok(
        yoke_model_preset(&model, "mlp:width=1040", (yoke_shape){1, 28, 28, false}, 10, NULL));
    struct rig rig = {.model = model, .rows = 2, .algorithm = YOKE_ALGORITHM_DIRECT};
    rig_devices(&rig);
    yoke_replica_options options = rig_options(&rig);
    options.first_bucket_bytes = options.bucket_bytes = 0;
    assert_ok(yoke_replica_create(&rig.replica, model, &options));
    assert_ok(yoke_replica_allocate(rig.replica, NULL, NULL));
    const yoke_flat *flat = yoke_replica_flat(rig.replica);
    /* No rows that a linear layer pads. fc3, then fc2 with its 4 MiB closes the first bucket; fc1
     * is the rest. */
    assert_int_equal(flat->bucket_count, 2);
    assert_int_equal(flat->buckets[1].elements, 1040 + 784 * 1040);
    expect_segments(model, flat);
    rig_destroy(&rig);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_are_pytorchs),
        cmocka_unit_test(a_bucket_closes_when_it_reaches_its_limit),
        cmocka_unit_test(offsets_follow_the_last_contribution),
        cmocka_unit_test(parameters_tile_the_buffer_in_cache_lines),
        cmocka_unit_test(buckets_tile_the_buffer_and_keep_their_limits),
        cmocka_unit_test(frozen_parameters_lie_behind_the_buckets),
        cmocka_unit_test(buckets_default_to_one_and_four_mebibytes_also_without_a_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
