/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, real or simulated, decode images to the bits that the loader makes on the host. Tests
 * the operation alone, and what an engine learns from batches of pixels. */
#include "data/data.h"
#include "image_layout_check.h"
#include "parallel/engine/engine.h"

#include <limits.h>
#include <stdatomic.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static uint8_t pixel_at(size_t i) {
    return (uint8_t)((uint32_t)i * 2654435761u >> 24);
}

/* The operation. */

#define ROWS 13
#define LARGEST_ROW (3 * 32 * 32)

static uint8_t pixels[ROWS * LARGEST_ROW];
static float expected[ROWS * LARGEST_ROW];

static yoke_dataset make_pictures(yoke_shape shape) {
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = pixel_at(i);
    return (yoke_dataset){.rows = ROWS,
                          .shape = shape,
                          .classes = 10,
                          .mean = {0.4914f, 0.4822f, 0.4465f, 0.5f},
                          .std = {0.2470f, 0.2435f, 0.2616f, 0.3f},
                          .bytes = pixels};
}

/* What the device makes of `pixels`, on the host; freed by the caller. */
static float *decode(yoke_device *device, const yoke_dataset *dataset,
                     const yoke_placement *placements, const yoke_decoding *decoding) {
    size_t values = ROWS * yoke_dataset_values(dataset);
    void *inputs = NULL, *places = NULL, *stored = device_copy_of(device, pixels, values);
    if (placements != NULL) places = device_copy_of(device, placements, ROWS * sizeof *placements);
    EXPECT_OK(yoke_device_allocate(device, values * sizeof(float), "a test", &inputs));
    yoke_decode_request request = {
        .rows = ROWS,
        .image = {dataset->shape.channels, dataset->shape.height, dataset->shape.width},
        .pixels = stored,
        .placements = places,
        .decoding = *decoding,
        .inputs = inputs};
    EXPECT_OK(yoke_device_decode(device, &request));
    check_image_layouts(device, &request);
    float *decoded = device_values(device, inputs, values * sizeof(float));
    yoke_device_free(device, inputs);
    if (places != NULL) yoke_device_free(device, places);
    yoke_device_free(device, stored);
    return decoded;
}

static void check_against_host(yoke_device *device, const yoke_dataset *dataset,
                               const yoke_augmentation *augmentation) {
    size_t values = yoke_dataset_values(dataset);
    yoke_placement placements[ROWS];
    yoke_decoding decoding = yoke_augment_decoding(dataset, augmentation);
    for (size_t row = 0; row < ROWS; row++) {
        placements[row] = yoke_augment_place(augmentation, &dataset->shape, row);
        yoke_stored_row stored = yoke_dataset_row(dataset, row);
        yoke_augment_row(dataset, row, &stored, augmentation, expected + row * values);
    }
    bool none = augmentation->kind == YOKE_AUGMENT_NONE;
    float *decoded = decode(device, dataset, none ? NULL : placements, &decoding);
    assert_memory_equal(decoded, expected, ROWS * values * sizeof(float));
    free(decoded);
}

/* One and three channels, more than there are means, one pixel, lines that a warp does not fill or
 * that take several. */
static const yoke_shape shapes[] = {{3, 32, 32, false}, {1, 28, 28, false}, {3, 12, 10, false},
                                    {1, 1, 1, false},   {6, 9, 7, false},   {2, 5, 101, false},
                                    {1, 40, 3, false},  {17, 1, 1, true}};

static void a_gpu_decodes_pixels_as_the_host_does(void **state) {
    yoke_device *device = yoke_devices_at(*state, 0);
    for (size_t i = 0; i < COUNT(shapes); i++) {
        yoke_dataset dataset = make_pictures(shapes[i]);
        for (int way = 0; way < 6; way++) {
            yoke_augmentation augmentation = {
                .kind = (yoke_augment)(way / 2), .raw = way % 2, .seed = i, .epoch = 3};
            if (augmentation.kind == YOKE_AUGMENT_CROP_FLIP) augmentation.erasing = 0.6;
            check_against_host(device, &dataset, &augmentation);
        }
    }
}

static void a_gpu_reflects_edges_as_the_host_does(void **state) {
    yoke_device *device = yoke_devices_at(*state, 0);
    for (size_t i = 0; i < COUNT(shapes); i++) {
        yoke_dataset dataset = make_pictures(shapes[i]);
        if (shapes[i].height < 3 || shapes[i].width < 3) continue;
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            yoke_augmentation augmentation = {.kind = YOKE_AUGMENT_CROP_FLIP,
                                              .seed = i,
                                              .epoch = epoch,
                                              .crop_flip = {2, true, true}};
            check_against_host(device, &dataset, &augmentation);
        }
    }
}

static float value_of(const yoke_dataset *dataset, const yoke_placement *placed,
                      const yoke_decoding *decoding, size_t index) {
    int64_t width = dataset->shape.width, height = dataset->shape.height;
    int64_t x = (int64_t)index % width, y = (int64_t)index / width % height;
    size_t plane = index / (size_t)(width * height);
    size_t channel = plane % (size_t)dataset->shape.channels;
    if (y >= placed->cut_top && y < (int64_t)placed->cut_top + placed->cut_height &&
        x >= placed->cut_left && x < (int64_t)placed->cut_left + placed->cut_width)
        return decoding->cut_value[channel];
    int64_t from_x = (placed->flip ? width - 1 - x : x) + placed->right, from_y = y + placed->down;
    bool outside = from_x < 0 || from_x >= width || from_y < 0 || from_y >= height;
    uint8_t pixel =
        outside
            ? 0
            : pixels[(plane * (size_t)height + (size_t)from_y) * (size_t)width + (size_t)from_x];
    return ((float)pixel / 255.0f - decoding->mean[channel]) / decoding->std[channel];
}

static void an_image_may_be_moved_out_of_sight(void **state) {
    static const yoke_placement odd[] = {
        {.down = 12},
        {.down = -12, .flip = true},
        {.right = 11, .flip = true},
        {.right = -9},
        {.right = INT_MAX, .down = INT_MIN},
        {.right = INT_MIN, .down = INT_MAX, .flip = true},
        {.cut_top = -4, .cut_left = 9, .cut_height = 5, .cut_width = 2},
        {.cut_top = INT_MIN, .cut_left = INT_MAX, .cut_height = 5, .cut_width = 5},
        {.cut_top = 11, .cut_left = -4, .cut_height = 3, .cut_width = 8, .down = 3}};
    yoke_device *device = yoke_devices_at(*state, 0);
    yoke_dataset dataset = make_pictures((yoke_shape){3, 12, 10, false});
    yoke_decoding decoding = {.mean = {0.1f, 0.2f, 0.3f}};
    yoke_placement placements[ROWS] = {{0}};
    for (int i = 0; i < 4; i++)
        decoding.std[i] = 0.5f, decoding.cut_value[i] = (float)(i + 7);
    memcpy(placements, odd, sizeof odd);
    float *decoded = decode(device, &dataset, placements, &decoding);
    size_t values = yoke_dataset_values(&dataset);
    for (size_t i = 0; i < ROWS * values; i++)
        assert_true(decoded[i] == value_of(&dataset, &placements[i / values], &decoding, i));
    free(decoded);
}

/* Batches. */

#define SET_ROWS 33 /* batches of 10: the last has 3 rows, so that some of 4 devices are idle */

static yoke_dataset *open_set(void) {
    static uint8_t bytes[SET_ROWS * CHECK_ROW];
    static int32_t labels[SET_ROWS];
    yoke_dataset *dataset = NULL;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pixel_at(i);
    for (int i = 0; i < SET_ROWS; i++)
        labels[i] = i * 7 % CHECK_CLASSES;
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = SET_ROWS,
                          .shape = {CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false},
                          .pixels = bytes,
                          .classes = CHECK_CLASSES,
                          .labels = labels};
    EXPECT_OK(yoke_dataset_from_arrays(&dataset, &arrays));
    return dataset;
}

/* Where the batches are decoded: on the host with devices = NULL. */
static yoke_loader *open_loader(const yoke_dataset *dataset, yoke_devices *devices,
                                yoke_augment augment, double mixup) {
    yoke_loader *loader = NULL;
    yoke_loader_options options = {.struct_size = sizeof options,
                                   .batch = 10,
                                   .shuffle = true,
                                   .augment = augment,
                                   .mixup = mixup,
                                   .seed = 5,
                                   .devices = devices};
    EXPECT_OK(yoke_loader_create(&loader, dataset, &options));
    assert_true(yoke_loader_pixels(loader) == (devices != NULL && mixup == 0));
    return loader;
}

typedef struct course {
    double losses[16];
    int count;
    uint64_t hash;
} course;

/* Two epochs, and an evaluation after each. */
static void learn(yoke_data_parallel *parallel, yoke_loader *loader, course *told) {
    *told = (course){.count = 0};
    for (uint64_t pass = 0; pass < 4; pass++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        EXPECT_OK(yoke_loader_begin(loader, pass));
        for (;;) {
            yoke_step_result result = {.struct_size = sizeof result};
            EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
            if (batch.rows == 0) break;
            assert_true((batch.pixels != NULL) == yoke_loader_pixels(loader));
            EXPECT_OK(pass % 2 == 0 ? yoke_data_parallel_step(parallel, &batch, 0.05, &result)
                                    : yoke_data_parallel_evaluate(parallel, &batch, &result));
            told->losses[told->count++] = result.loss;
        }
    }
    EXPECT_OK(yoke_data_parallel_hash(parallel, &told->hash));
}

static void compare_courses(const yoke_model *model, const yoke_dataset *dataset, int devices,
                            yoke_data_parallel_options options) {
    course told[2];
    for (int with_pixels = 0; with_pixels < 2; with_pixels++) {
        options.pixels = with_pixels;
        check_engine engine = check_engine_make(model, devices, options, NULL);
        yoke_loader *loader = open_loader(dataset, with_pixels ? engine.devices : NULL,
                                          YOKE_AUGMENT_CROP_FLIP_CUTOUT, 0);
        learn(engine.parallel, loader, &told[with_pixels]);
        yoke_loader_destroy(loader);
        check_engine_free(&engine);
    }
    assert_int_equal(told[0].count, 16);
    assert_memory_equal(told[0].losses, told[1].losses, sizeof told[0].losses);
    assert_true(told[0].hash == told[1].hash);
}

static void pixels_teach_what_inputs_teach(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_dataset *dataset = open_set();
    for (int devices = 1; devices <= 4; devices++)
        compare_courses(model, dataset, devices,
                        (yoke_data_parallel_options){.schedule = (yoke_schedule)(devices % 3),
                                                     .algorithm = YOKE_ALGORITHM_DIRECT,
                                                     .batch = 10,
                                                     .accumulate = devices % 2 + 1});
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

/* What a step uploads, and how it decodes. */

static const yoke_backend *whole;
static yoke_backend watched;
static atomic_size_t uploaded;
static atomic_int decoded_plain, decoded_to_layout, laid_out; /* shards */

static yoke_status watched_upload(yoke_device *device, yoke_stream stream, void *to,
                                  const void *from, size_t bytes) {
    atomic_fetch_add(&uploaded, bytes);
    return whole->upload(device, stream, to, from, bytes);
}

static yoke_status watched_queue_upload(yoke_device *device, yoke_stream stream, void *to,
                                        const void *from, size_t bytes) {
    atomic_fetch_add(&uploaded, bytes);
    return whole->queue_upload(device, stream, to, from, bytes);
}

static yoke_status watched_decode(yoke_device *device, const yoke_decode_request *request) {
    atomic_fetch_add(request->decoded != NULL  ? &laid_out
                     : request->layout != NULL ? &decoded_to_layout
                                               : &decoded_plain,
                     1);
    return whole->decode(device, request);
}

static void watch(yoke_devices *devices) {
    whole = yoke_devices_at(devices, 0)->backend;
    watched = *whole;
    watched.upload = watched_upload;
    watched.queue_upload = watched_queue_upload;
    watched.decode = watched_decode;
    decoded_plain = decoded_to_layout = laid_out = 0;
    for (int k = 0; k < yoke_devices_count(devices); k++)
        yoke_devices_at(devices, k)->backend = &watched;
}

static size_t upload_of_a_step(const check_engine *engine, const yoke_dataset *dataset,
                               yoke_augment augment, bool with_pixels) {
    yoke_batch batch = {.struct_size = sizeof batch};
    yoke_loader *loader = open_loader(dataset, with_pixels ? engine->devices : NULL, augment, 0);
    EXPECT_OK(yoke_loader_begin(loader, 0));
    EXPECT_OK(yoke_loader_next(loader, &batch, NULL));
    atomic_store(&uploaded, 0);
    EXPECT_OK(yoke_data_parallel_step(engine->parallel, &batch, 0.05, NULL));
    yoke_loader_destroy(loader);
    return atomic_load(&uploaded);
}

static void a_step_uploads_the_bytes_of_its_images_alone(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_dataset *dataset = open_set();
    check_engine engine =
        check_engine_make(model, 2, (yoke_data_parallel_options){.batch = 10}, NULL);
    watch(engine.devices);
    size_t labels = 10 * sizeof(int32_t), places = 10 * sizeof(yoke_placement);
    size_t inputs = upload_of_a_step(&engine, dataset, YOKE_AUGMENT_CROP_FLIP, false);
    size_t plain = upload_of_a_step(&engine, dataset, YOKE_AUGMENT_NONE, true);
    size_t placed = upload_of_a_step(&engine, dataset, YOKE_AUGMENT_CROP_FLIP, true);
    print_message("a step of 10 pictures of %d bytes uploads %zu bytes as inputs, %zu as pixels\n",
                  CHECK_ROW, inputs, placed);
    assert_int_equal(inputs, 10 * CHECK_ROW * sizeof(float) + labels);
    assert_int_equal(plain, 10 * CHECK_ROW + labels);
    assert_int_equal(placed, 10 * CHECK_ROW + labels + places);
    check_engine_free(&engine);
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

/* The layout of the first layer. */

static yoke_conv2d_options first_convolution(const char *name) {
    return (yoke_conv2d_options){.struct_size = sizeof(yoke_conv2d_options),
                                 .name = name,
                                 .out_channels = 8,
                                 .kernel = 3,
                                 .padding = 1,
                                 .no_bias = true};
}

/* Two convolutions read the input, or none does. */
static yoke_model *model_without_image(bool convolutions) {
    const yoke_shape shape = {CHECK_CHANNELS, CHECK_SIDE, CHECK_SIDE, false};
    const yoke_linear_options fc = {
        .struct_size = sizeof fc, .name = "fc", .out_features = CHECK_CLASSES};
    const yoke_conv2d_options left = first_convolution("left"), right = first_convolution("right");
    yoke_model *model = NULL;
    EXPECT_OK(yoke_model_create(&model, "other", shape));
    yoke_value x = yoke_model_input(model);
    if (convolutions)
        x = yoke_add(model, yoke_conv2d(model, x, &left), yoke_conv2d(model, x, &right));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, yoke_flatten(model, x), &fc), NULL));
    return model;
}

/* The candidates that algorithms take. */
typedef struct preference {
    const char *names[3];
} preference;

static const preference stems[] = {{{NULL}},
                                   {{"4 channels"}},
                                   {{"8 channels"}},
                                   {{"8 channels", "joined", "added by the same pass"}}};

static check_engine engine_on(const yoke_model *model, const char *list,
                              yoke_data_parallel_options options, const preference *preferred) {
    check_engine made = {0};
    yoke_algorithms *algorithms = NULL;
    yoke_devices_options open = {.struct_size = sizeof open, .list = list, .threads = 1};
    EXPECT_OK(yoke_devices_open(&made.devices, &open));
    EXPECT_OK(yoke_algorithms_create(&algorithms));
    for (size_t i = 0; i < COUNT(preferred->names) && preferred->names[i] != NULL; i++)
        yoke_algorithms_prefer(algorithms, preferred->names[i]);
    options.struct_size = sizeof options;
    options.algorithm = YOKE_ALGORITHM_DIRECT;
    EXPECT_OK(yoke_engine_create(&made.parallel, model, made.devices, NULL, &options, algorithms));
    return made;
}

static course course_on(const yoke_model *model, const yoke_dataset *dataset, const char *list,
                        yoke_data_parallel_options options, const preference *preferred,
                        double mixup) {
    course told;
    check_engine engine = engine_on(model, list, options, preferred);
    yoke_loader *loader =
        open_loader(dataset, engine.devices, YOKE_AUGMENT_CROP_FLIP_CUTOUT, mixup);
    watch(engine.devices);
    learn(engine.parallel, loader, &told);
    yoke_loader_destroy(loader);
    check_engine_free(&engine);
    return told;
}

static void expect_same_course(const yoke_model *model, const yoke_dataset *dataset, int devices,
                               const preference *preferred, yoke_data_parallel_options options,
                               double mixup) {
    char list[64];
    options.batch = 10;
    course without = course_on(model, dataset, devices_of(devices), options, preferred, mixup);
    assert_int_equal(decoded_to_layout + laid_out, 0);
    snprintf(list, sizeof list, "%s+decode", devices_of(devices));
    course with = course_on(model, dataset, list, options, preferred, mixup);
    assert_int_equal(with.count, 16);
    assert_memory_equal(with.losses, without.losses, sizeof with.losses);
    assert_true(with.hash == without.hash);
}

static void pixels_decoded_for_the_first_layer_teach_the_same(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_dataset *dataset = open_set();
    for (int i = 0; i < 2 * (int)COUNT(stems); i++) {
        yoke_data_parallel_options options = {.precision = YOKE_BFLOAT16,
                                              .schedule = (yoke_schedule)(i % 3),
                                              .accumulate = i % 2 + 1,
                                              .pixels = i % 4 < 2};
        expect_same_course(model, dataset, 1 + i / (int)COUNT(stems), &stems[i % (int)COUNT(stems)],
                           options, 0);
        assert_true(decoded_to_layout > 0 && decoded_plain + laid_out == 0);
    }
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

/* With mixup, inputs arrive as floats, and in training their labels are mixed. */
static void floats_laid_out_for_the_first_layer_teach_the_same(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_dataset *dataset = open_set();
    for (int i = 0; i < 2 * (int)COUNT(stems); i++) {
        yoke_data_parallel_options options = {
            .precision = YOKE_BFLOAT16, .schedule = (yoke_schedule)(i % 3), .pixels = i % 4 < 2};
        expect_same_course(model, dataset, 1 + i / (int)COUNT(stems), &stems[i % (int)COUNT(stems)],
                           options, 0.4);
        assert_true(laid_out > 0 && decoded_plain + decoded_to_layout == 0);
    }
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

static double loss_after_two_steps(const yoke_model *model, const char *list, bool on_the_gpu) {
    yoke_data_parallel_options options = {.precision = YOKE_BFLOAT16, .batch = 6};
    yoke_step_result result = {.struct_size = sizeof result};
    check_engine engine = engine_on(model, list, options, &stems[1]);
    yoke_device *root = yoke_devices_at(engine.devices, 0);
    check_batch made = check_batch_make(6, 1);
    yoke_batch batch = made.batch;
    if (on_the_gpu) batch.inputs = device_copy_of(root, made.inputs, 6 * CHECK_ROW * sizeof(float));
    for (int step = 0; step < 2; step++)
        EXPECT_OK(yoke_data_parallel_step(engine.parallel, &batch, 0.05, &result));
    if (on_the_gpu) yoke_device_free(root, (void *)(uintptr_t)batch.inputs);
    check_batch_free(&made);
    check_engine_free(&engine);
    return result.loss;
}

/* The root's shard is copied on its GPU, that of the other GPU goes through staging memory. */
static void inputs_on_a_gpu_are_laid_out_there(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    char list[64];
    double wanted = loss_after_two_steps(model, devices_of(2), false);
    snprintf(list, sizeof list, "%s+decode", devices_of(2));
    assert_true(loss_after_two_steps(model, list, true) == wanted);
    yoke_model_destroy(model);
}

/* float32, the gradient of the inputs, and models that no single convolution begins. */
static void others_are_decoded_to_plain_float32(void **state) {
    (void)state;
    yoke_dataset *dataset = open_set();
    for (int i = 0; i < 4; i++) {
        yoke_model *model = i < 2 ? check_model(true, 0) : model_without_image(i == 2);
        yoke_data_parallel_options options = {.precision = i == 0 ? YOKE_FLOAT32 : YOKE_BFLOAT16,
                                              .input_gradients = i == 1};
        expect_same_course(model, dataset, 2, &stems[1], options, 0);
        assert_true(decoded_plain > 0 && decoded_to_layout + laid_out == 0);
        yoke_model_destroy(model);
    }
    yoke_dataset_close(dataset);
}

static void expect_bad(const check_engine *engine, const yoke_batch *batch, const char *words) {
    assert_int_equal(yoke_data_parallel_step(engine->parallel, batch, 0.05, NULL),
                     YOKE_ERROR_NUMERIC);
    if (strstr(yoke_last_error(), words) == NULL) fail_msg("%s", yoke_last_error());
}

/* The error after a loss that is not finite names its first cause. */
static void a_bad_input_is_found_in_every_layout(void **state) {
    (void)state;
    static const float bias[CHECK_CLASSES] = {NAN};
    yoke_model *model = check_model(true, 0);
    for (size_t i = 0; i < COUNT(stems); i++) {
        char list[64];
        snprintf(list, sizeof list, "%s+decode", devices_of(1));
        check_engine engine = engine_on(
            model, list, (yoke_data_parallel_options){.precision = YOKE_BFLOAT16, .batch = 4},
            &stems[i]);
        check_batch made = check_batch_make(4, 1);
        made.inputs[4 * CHECK_ROW - 1] = NAN;
        expect_bad(&engine, &made.batch, "first at input on");
        made.inputs[4 * CHECK_ROW - 1] = 0;
        EXPECT_OK(yoke_data_parallel_write(engine.parallel, "fc.bias", bias, CHECK_CLASSES));
        expect_bad(&engine, &made.batch, "first at fc on");
        check_batch_free(&made);
        check_engine_free(&engine);
    }
    yoke_model_destroy(model);
}

/* Engines. */

static size_t bytes_of_engine(const yoke_model *model, bool with_pixels) {
    yoke_memory_report report = {.struct_size = sizeof report};
    check_engine engine = check_engine_make(
        model, 2, (yoke_data_parallel_options){.batch = 10, .pixels = with_pixels}, NULL);
    EXPECT_OK(yoke_data_parallel_memory(engine.parallel, 1, &report));
    check_engine_free(&engine);
    return report.total;
}

static void an_engine_for_pixels_keeps_no_room_for_inputs(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    size_t saved = 5 * CHECK_ROW * (sizeof(float) - sizeof(uint8_t));
    assert_int_equal(bytes_of_engine(model, false) - bytes_of_engine(model, true), saved);
    yoke_model_destroy(model);
}

/* It is only not made for them: they are uploaded when the last batch is computed. */
static void an_engine_for_pixels_takes_inputs_as_well(void **state) {
    (void)state;
    yoke_model *model = check_model(true, 0);
    yoke_dataset *dataset = open_set();
    course told[2];
    for (int for_pixels = 0; for_pixels < 2; for_pixels++) {
        yoke_data_parallel_options options = {
            .algorithm = YOKE_ALGORITHM_DIRECT, .batch = 10, .pixels = for_pixels};
        check_engine engine = check_engine_make(model, 3, options, NULL);
        yoke_loader *loader = open_loader(dataset, NULL, YOKE_AUGMENT_CROP_FLIP, 0);
        learn(engine.parallel, loader, &told[for_pixels]);
        yoke_loader_destroy(loader);
        check_engine_free(&engine);
    }
    assert_memory_equal(&told[0], &told[1], sizeof told[0]);
    yoke_dataset_close(dataset);
    yoke_model_destroy(model);
}

static void batches_that_say_two_things_or_nothing_are_refused(void **state) {
    (void)state;
    yoke_model *model = check_model(false, 0);
    check_engine engine =
        check_engine_make(model, 1, (yoke_data_parallel_options){.batch = 4}, NULL);
    check_batch made = check_batch_make(4, 1);
    yoke_decoding unsized = {.mean = {0}};
    yoke_batch batch = made.batch;
    batch.pixels = pixels;
    assert_int_equal(
        yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL),
        YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "both inputs and pixels"));
    batch.inputs = NULL;
    assert_int_equal(
        yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL),
        YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "without a decoding"));
    batch.decoding = &unsized;
    assert_int_equal(
        yoke_data_parallel_step(engine.parallel, &batch, YOKE_OPTIMIZER_LEARNING_RATE, NULL),
        YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "yoke_decoding.struct_size"));
    check_batch_free(&made);
    check_engine_free(&engine);
    yoke_model_destroy(model);
}

static int open_device(void **state) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cuda:0"};
    EXPECT_OK(yoke_devices_open(&devices, &options));
    *state = devices;
    return 0;
}

static int close_device(void **state) {
    yoke_devices_close(*state);
    return 0;
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_decodes_pixels_as_the_host_does),
        cmocka_unit_test(a_gpu_reflects_edges_as_the_host_does),
        cmocka_unit_test(an_image_may_be_moved_out_of_sight),
        cmocka_unit_test(pixels_teach_what_inputs_teach),
        cmocka_unit_test(a_step_uploads_the_bytes_of_its_images_alone),
        cmocka_unit_test(pixels_decoded_for_the_first_layer_teach_the_same),
        cmocka_unit_test(floats_laid_out_for_the_first_layer_teach_the_same),
        cmocka_unit_test(inputs_on_a_gpu_are_laid_out_there),
        cmocka_unit_test(others_are_decoded_to_plain_float32),
        cmocka_unit_test(a_bad_input_is_found_in_every_layout),
        cmocka_unit_test(an_engine_for_pixels_keeps_no_room_for_inputs),
        cmocka_unit_test(an_engine_for_pixels_takes_inputs_as_well),
        cmocka_unit_test(batches_that_say_two_things_or_nothing_are_refused),
    };
    return RUN_ON_DEVICES(tests, open_device, close_device);
}
