/* SPDX-License-Identifier: Apache-2.0 */
/* Initial values follow PyTorch's distributions and depend on the seed alone. */
#include "replica_rig.h"

static float *read_tensor(const struct rig *rig, const char *name, size_t *count) {
    int tensor = yoke_model_find_tensor(rig->model, name, NULL);
    assert_true(tensor >= 0);
    *count = rig->model->tensors[tensor].count;
    float *values = malloc(*count * sizeof *values);
    assert_ok(yoke_replica_read(rig->replica, tensor, false, values));
    return values;
}

struct summary {
    double mean, std, smallest, largest, kurtosis;
};

static struct summary summarize(const struct rig *rig, const char *name) {
    size_t count;
    float *values = read_tensor(rig, name, &count);
    struct summary s = {.smallest = INFINITY, .largest = -INFINITY};
    double n = (double)count, second = 0, fourth = 0;
    for (size_t i = 0; i < count; i++) {
        s.mean += (double)values[i] / n;
        s.smallest = fmin(s.smallest, (double)values[i]);
        s.largest = fmax(s.largest, (double)values[i]);
    }
    for (size_t i = 0; i < count; i++) {
        double d = (double)values[i] - s.mean;
        second += d * d / n;
        fourth += d * d * d * d / n;
    }
    s.std = sqrt(second);
    s.kurtosis = fourth / (second * second);
    free(values);
    return s;
}

/* Builds the replica without the rig's stirring of batch norms. */
static void plain_rig(struct rig *rig, yoke_model *model, int rows, uint64_t seed) {
    *rig = (struct rig){.model = model, .rows = rows, .algorithm = YOKE_ALGORITHM_DIRECT};
    rig_devices(rig);
    yoke_replica_options options = rig_options(rig);
    assert_ok(yoke_replica_create(&rig->replica, model, &options));
    assert_ok(yoke_replica_allocate(rig->replica, NULL, NULL));
    assert_ok(yoke_replica_initialize(rig->replica, seed));
}

static yoke_model *preset_of_side(const char *name, int side) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_preset(&model, name, yoke_shape_image(3, side, side), 10, NULL));
    return model;
}

static yoke_model *preset(const char *name) {
    return preset_of_side(name, 8);
}

static yoke_model *plain_convolutions(void) {
    yoke_model *model = NULL;
    assert_ok(yoke_model_create(&model, "plain", (yoke_shape){32, 5, 5, false}));
    yoke_conv2d_options options = {.struct_size = sizeof options,
                                   .name = "conv",
                                   .out_channels = 64,
                                   .kernel = 3,
                                   .groups = 2};
    yoke_value value = yoke_conv2d(model, yoke_model_input(model), &options);
    yoke_linear_options linear = {.struct_size = sizeof linear, .name = "fc", .out_features = 100};
    value = yoke_linear(model, yoke_flatten(model, value), &linear);
    assert_ok(yoke_model_finish(model, value, NULL));
    return model;
}

static void assert_uniform(const struct rig *rig, const char *name, double bound) {
    struct summary s = summarize(rig, name);
    assert_true(s.smallest >= -bound && s.largest < bound);
    assert_true(s.largest > 0.9 * bound && s.smallest < -0.9 * bound);
    assert_true(fabs(s.mean) < 0.15 * bound);
    assert_true(fabs(s.std / (bound / sqrt(3)) - 1) < 0.15);
}

static void assert_normal(const struct rig *rig, const char *name, double std) {
    struct summary s = summarize(rig, name);
    assert_true(fabs(s.std / std - 1) < 0.05);
    assert_true(fabs(s.mean) < 0.05 * std);
    assert_true(fabs(s.kurtosis - 3) < 0.2);
}

static void assert_constant(const struct rig *rig, const char *name, double value) {
    struct summary s = summarize(rig, name);
    assert_true(s.smallest == value && s.largest == value);
}

/* kaiming_uniform(a = sqrt 5) is U(+-1 / sqrt(fan_in)); fan_in counts one group's channels. */
static void convolutions_and_linears_are_uniform_by_fan_in(void **state) {
    (void)state;
    struct rig rig;
    plain_rig(&rig, plain_convolutions(), 2, 1);
    assert_uniform(&rig, "conv.weight", 1 / sqrt(16 * 9));
    assert_uniform(&rig, "conv.bias", 1 / sqrt(16 * 9));
    assert_uniform(&rig, "fc.weight", 1 / sqrt(64 * 9));
    assert_uniform(&rig, "fc.bias", 1 / sqrt(64 * 9));
    rig_destroy(&rig);
}

static void resnet_convolutions_are_normal_by_fan_out(void **state) {
    (void)state;
    struct rig rig;
    plain_rig(&rig, preset("resnet20"), 2, 1);
    struct summary s = summarize(&rig, "layer3.2.conv2.weight");
    assert_true(fabs(s.std / sqrt(2.0 / (64 * 9)) - 1) < 0.02);
    assert_true(fabs(s.mean) < 0.02 * s.std);
    assert_true(fabs(s.kurtosis - 3) < 0.15);
    s = summarize(&rig, "conv1.weight"); /* fan_out, not fan_in: 16 * 9 */
    assert_true(fabs(s.std / sqrt(2.0 / (16 * 9)) - 1) < 0.15);
    assert_uniform(&rig, "fc.weight", 1 / sqrt(64));
    rig_destroy(&rig);
}

/* A convolution with a bias, as VGG's; grouped ones count every output channel in fan_out. */
static void torchvisions_other_models_begin_as_theirs(void **state) {
    (void)state;
    struct rig rig;
    yoke_model *vgg = NULL;
    assert_ok(yoke_model_preset(&vgg, "vgg11_bn:hidden=16",
                                (yoke_shape){.channels = 3, .height = 32, .width = 32}, 10, NULL));
    plain_rig(&rig, vgg, 2, 1);
    struct summary s = summarize(&rig, "features.4.weight");
    assert_true(fabs(s.std / sqrt(2.0 / (128 * 9)) - 1) < 0.02);
    assert_true(fabs(s.kurtosis - 3) < 0.15);
    s = summarize(&rig, "features.4.bias");
    assert_true(s.smallest == 0 && s.largest == 0);
    s = summarize(&rig, "classifier.0.weight");
    assert_true(fabs(s.std / 0.01 - 1) < 0.02);
    s = summarize(&rig, "classifier.0.bias");
    assert_true(s.smallest == 0 && s.largest == 0);
    rig_destroy(&rig);
    plain_rig(&rig, preset("mobilenet_v2"), 2, 1);
    s = summarize(&rig, "features.17.conv.1.0.weight");
    assert_true(fabs(s.std / sqrt(2.0 / (960 * 9)) - 1) < 0.05);
    s = summarize(&rig, "classifier.1.weight");
    assert_true(fabs(s.std / 0.01 - 1) < 0.05);
    rig_destroy(&rig);
}

static void torchvisions_newer_models_begin_as_theirs(void **state) {
    (void)state;
    struct rig rig;
    plain_rig(&rig, preset_of_side("densenet121", 32), 2, 1);
    assert_normal(&rig, "features.denseblock4.denselayer16.conv1.weight", sqrt(2.0 / 992));
    assert_normal(&rig, "features.denseblock4.denselayer16.conv2.weight", sqrt(2.0 / (128 * 9)));
    assert_uniform(&rig, "classifier.weight", 1 / sqrt(1024));
    assert_constant(&rig, "classifier.bias", 0);
    rig_destroy(&rig);
    plain_rig(&rig, preset_of_side("efficientnet_b0", 32), 2, 1);
    assert_normal(&rig, "features.6.3.block.1.0.weight", sqrt(2.0 / (1152 * 25)));
    assert_normal(&rig, "features.6.3.block.2.fc1.weight", sqrt(2.0 / 48));
    assert_constant(&rig, "features.6.3.block.2.fc1.bias", 0);
    assert_uniform(&rig, "classifier.1.weight", 1 / sqrt(10));
    assert_constant(&rig, "classifier.1.bias", 0);
    rig_destroy(&rig);
    plain_rig(&rig, preset_of_side("convnext_tiny", 32), 2, 1);
    assert_constant(&rig, "features.7.2.layer_scale", (double)1e-6f);
    assert_normal(&rig, "features.7.2.block.0.weight", 0.02);
    assert_normal(&rig, "features.7.2.block.5.weight", 0.02);
    assert_constant(&rig, "features.7.2.block.0.bias", 0);
    rig_destroy(&rig);
}

/* torch.nn.init.dirac_(weight[:weight.size(1)]): filter i hands channel i on, and only the others
 * are drawn. */
static void assert_dirac(const struct rig *rig, const char *name, size_t out, size_t in) {
    size_t count, handed = out < in ? out : in;
    float *values = read_tensor(rig, name, &count);
    assert_int_equal(count, out * in * 9);
    for (size_t i = 0; i < handed * in * 9; i++) {
        bool center = i % 9 == 4 && i / 9 % in == i / 9 / in;
        assert_true(values[i] == (center ? 1.0f : 0.0f));
    }
    float bound = (float)(1 / sqrt(9.0 * (double)in));
    for (size_t i = handed * in * 9; i < count; i++)
        assert_true(values[i] != 0 && values[i] >= -bound && values[i] < bound);
    free(values);
}

static void airbench_begins_as_its_script_does(void **state) {
    (void)state;
    struct rig rig;
    plain_rig(&rig, preset_of_side("airbench94:width=16", 32), 2, 1);
    assert_dirac(&rig, "layers.1.conv1.weight", 16, 24);
    assert_dirac(&rig, "layers.1.conv2.weight", 16, 16);
    assert_dirac(&rig, "layers.2.conv1.weight", 64, 16);
    assert_uniform(&rig, "head.weight", sqrt(3)); /* std 1 */
    assert_uniform(&rig, "whiten.weight", 1 / sqrt(12));
    assert_constant(&rig, "layers.2.norm1.weight", 1);
    rig_destroy(&rig);
}

static void batch_norms_begin_neutral(void **state) {
    (void)state;
    static const struct {
        const char *name;
        float value;
    } expected[] = {{"layer2.0.downsample.1.weight", 1},
                    {"layer2.0.downsample.1.bias", 0},
                    {"layer2.0.downsample.1.running_mean", 0},
                    {"layer2.0.downsample.1.running_var", 1}};
    struct rig rig;
    plain_rig(&rig, preset("resnet20"), 2, 1);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        size_t count;
        float *values = read_tensor(&rig, expected[i].name, &count);
        for (size_t k = 0; k < count; k++)
            assert_true(values[k] == expected[i].value);
        free(values);
    }
    rig_destroy(&rig);
}

/* Other rows and another image size mean other layouts and plans: the values must not notice. */
static void values_depend_on_the_seed_alone(void **state) {
    (void)state;
    yoke_model *large = NULL;
    assert_ok(yoke_model_preset(&large, "resnet20", (yoke_shape){3, 16, 16, false}, 10, NULL));
    struct rig a, b, c;
    plain_rig(&a, preset("resnet20"), 2, 7);
    plain_rig(&b, large, 5, 7);
    plain_rig(&c, preset("resnet20"), 2, 8);
    for (int i = 0; i < a.model->tensor_count; i++) {
        const yoke_tensor *tensor = &a.model->tensors[i];
        if (tensor->integer) continue;
        size_t count;
        float *x = read_tensor(&a, tensor->name, &count);
        float *y = read_tensor(&b, tensor->name, &count);
        float *z = read_tensor(&c, tensor->name, &count);
        assert_memory_equal(x, y, count * sizeof *x);
        bool drawn = tensor->fill.kind != YOKE_FILL_CONSTANT;
        assert_int_equal(memcmp(x, z, count * sizeof *x) != 0, drawn);
        free(x);
        free(y);
        free(z);
    }
    rig_destroy(&a);
    rig_destroy(&b);
    rig_destroy(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_and_linears_are_uniform_by_fan_in),
        cmocka_unit_test(resnet_convolutions_are_normal_by_fan_out),
        cmocka_unit_test(torchvisions_other_models_begin_as_theirs),
        cmocka_unit_test(torchvisions_newer_models_begin_as_theirs),
        cmocka_unit_test(airbench_begins_as_its_script_does),
        cmocka_unit_test(batch_norms_begin_neutral),
        cmocka_unit_test(values_depend_on_the_seed_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
