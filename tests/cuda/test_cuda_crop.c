/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs, real or simulated, crop and scale photographs to the bits that the host makes of them: the
 * operation alone, what a loader hands over, and what a trainer learns from it. */
#include <sys/stat.h>

#include "data/images.h"
#include "image_layout_check.h"
#include "pictures/pictures.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static uint32_t drawn = 1;

static int draw(int below) {
    drawn = drawn * 1664525u + 1013904223u;
    return (int)(((uint64_t)drawn * (uint64_t)below) >> 32);
}

/* A PNG of random pixels; 1 channel: gray. The caller frees its data. */
static yoke_image draw_image(int channels, int width, int height) {
    size_t values = (size_t)channels * (size_t)width * (size_t)height;
    uint8_t *pixels = malloc(values), *file = NULL;
    assert_non_null(pixels);
    for (size_t i = 0; i < values; i++)
        pixels[i] = (uint8_t)draw(256);
    yoke_png_image picture = {pixels, channels, height, width};
    yoke_image image = {.name = "drawn", .bytes = yoke_png_file(&picture, &file)};
    assert_true(image.bytes > 0);
    image.data = file;
    free(pixels);
    EXPECT_OK(yoke_image_open(&image));
    return image;
}

/* The operation. */

#define ROWS 40
#define LARGEST 40 /* of the rows' sizes */
#define LARGEST_ROW (3 * LARGEST * LARGEST)

typedef struct crops {
    int size, scaled_here, enlarged, reduced;
    yoke_crop of[ROWS];
    uint8_t pixels[ROWS * LARGEST_ROW * sizeof(float)];
    uint8_t rows[ROWS * LARGEST_ROW]; /* by the host */
} crops;

static yoke_image_view draw_view(const yoke_image *image, int size) {
    if (draw(3) == 0)
        return yoke_image_center(image->width, image->height, size + draw(size), size);
    yoke_image_view view = {.width = size, .height = size};
    view.box_width = 1 + draw(image->width);
    view.box_height = 1 + draw(image->height);
    view.left = draw(image->width - view.box_width + 1);
    view.top = draw(image->height - view.box_height + 1);
    return view;
}

static void count_kind(crops *made, const yoke_crop *crop, const yoke_image_view *view) {
    bool whole = crop->width == made->size && crop->height == made->size;
    made->scaled_here +=
        whole && (crop->across.inputs != view->box_width || crop->down.inputs != view->box_height);
    made->enlarged += crop->width < made->size || crop->height < made->size;
    made->reduced += crop->width > made->size || crop->height > made->size;
}

static void add_row(crops *made, int i, const yoke_image *image, const yoke_image_view *view,
                    bool scaled) {
    size_t values = 3 * (size_t)made->size * (size_t)made->size;
    yoke_crop *crop = &made->of[i];
    crop->offset = i > 0 ? crop[-1].offset + yoke_crop_bytes(&crop[-1], 3) : 0;
    EXPECT_OK(yoke_image_render(image, view, made->size, scaled, made->rows + (size_t)i * values));
    EXPECT_OK(yoke_image_cut(image, view, made->size, scaled, crop, made->pixels + crop->offset));
    assert_true(yoke_crop_bytes(crop, 3) <= values * sizeof(float));
    count_kind(made, crop, view);
}

/* What the device makes of the crops, on the host; freed by the caller. */
static float *decode(yoke_device *device, const crops *made, int rows,
                     const yoke_placement *placements, const yoke_decoding *decoding) {
    size_t values = 3 * (size_t)made->size * (size_t)made->size, count = (size_t)rows;
    const yoke_crop *last = &made->of[rows - 1];
    void *inputs = NULL, *places = device_copy_of(device, placements, count * sizeof *placements);
    void *pixels = device_copy_of(device, made->pixels, last->offset + yoke_crop_bytes(last, 3));
    void *described = device_copy_of(device, made->of, count * sizeof *made->of);
    EXPECT_OK(yoke_device_allocate(device, count * values * sizeof(float), "a test", &inputs));
    yoke_decode_request request = {.rows = rows,
                                   .image = {3, made->size, made->size},
                                   .pixels = pixels,
                                   .crops = described,
                                   .placements = places,
                                   .decoding = *decoding,
                                   .inputs = inputs};
    EXPECT_OK(yoke_device_decode(device, &request));
    check_image_layouts(device, &request);
    float *decoded = device_values(device, inputs, count * values * sizeof(float));
    yoke_device_free(device, inputs);
    yoke_device_free(device, described);
    yoke_device_free(device, pixels);
    yoke_device_free(device, places);
    return decoded;
}

static void compare_with_host(yoke_device *device, const crops *made, int rows,
                              const yoke_augmentation *augmentation) {
    size_t values = 3 * (size_t)made->size * (size_t)made->size;
    yoke_dataset dataset = {.rows = ROWS,
                            .shape = {3, made->size, made->size, false},
                            .classes = 2,
                            .mean = {0.4914f, 0.4822f, 0.4465f},
                            .std = {0.2470f, 0.2435f, 0.2616f, 1},
                            .bytes = made->rows};
    yoke_placement placements[ROWS];
    float *expected = malloc(ROWS * values * sizeof(float));
    yoke_decoding decoding = yoke_augment_decoding(&dataset, augmentation);
    for (int i = 0; i < rows; i++) {
        size_t row = (size_t)i;
        yoke_stored_row stored = yoke_dataset_row(&dataset, row);
        placements[i] = yoke_augment_place(augmentation, &dataset.shape, row);
        yoke_augment_row(&dataset, row, &stored, augmentation, expected + row * values);
    }
    float *decoded = decode(device, made, rows, placements, &decoding);
    assert_memory_equal(decoded, expected, (size_t)rows * values * sizeof(float));
    free(decoded);
    free(expected);
}

/* Every way to place a row; `raw` keeps a byte's bits, so that equal inputs are equal bytes. */
static void compare_all(yoke_device *device, const crops *made, int rows, uint64_t seed) {
    static const yoke_augment kinds[] = {YOKE_AUGMENT_NONE, YOKE_AUGMENT_CROP_FLIP,
                                         YOKE_AUGMENT_CROP_FLIP_CUTOUT,
                                         YOKE_AUGMENT_RESIZED_CROP_FLIP};
    for (size_t i = 0; i < COUNT(kinds); i++)
        for (int raw = 0; raw < 2; raw++) {
            yoke_augmentation augmentation = {.kind = kinds[i], .raw = raw, .seed = seed};
            if (kinds[i] == YOKE_AUGMENT_RESIZED_CROP_FLIP) augmentation.erasing = 0.5;
            compare_with_host(device, made, rows, &augmentation);
        }
}

/* One pixel, one line, and the largest that all sizes of the row enlarge or reduce. */
static const int sides[][2] = {{1, 1}, {1, 90}, {200, 1}, {2, 3}, {17, 40}, {63, 64}, {160, 120}};

static void a_gpu_scales_crops_as_the_host_does(void **state) {
    static const int sizes[] = {1, 8, 13, 32, LARGEST};
    crops *made = calloc(1, sizeof *made);
    assert_non_null(made);
    for (size_t s = 0; s < COUNT(sizes); s++) {
        made->size = sizes[s];
        for (int i = 0; i < ROWS; i++) {
            const int *side = sides[(size_t)i % COUNT(sides)];
            bool odd = i >= ROWS / 2;
            yoke_image image = draw_image(1 + 2 * draw(2), odd ? 1 + draw(150) : side[0],
                                          odd ? 1 + draw(150) : side[1]);
            yoke_image_view view = draw_view(&image, made->size);
            add_row(made, i, &image, &view, false);
            free((void *)image.data);
        }
        compare_all(yoke_devices_at(*state, 0), made, ROWS, s);
    }
    print_message("%d crops are enlarged, %d reduced, %d boxes too large for the GPU\n",
                  made->enlarged, made->reduced, made->scaled_here);
    assert_true(made->enlarged > 20 && made->reduced > 20 && made->scaled_here > 20);
    free(made);
}

/* JPEG files at a half, a fourth and an eighth of their size: boxes begin between pixels. */
static void scaled_decoding_goes_to_the_gpu_as_well(void **state) {
    static const char *const files[] = {"color.jpg", "gray.jpg", "progressive.jpg", "wide.png",
                                        "palette.png"};
    crops *made = calloc(1, sizeof *made);
    assert_non_null(made);
    made->size = 8;
    for (int i = 0; i < ROWS; i++) {
        char path[512];
        unsigned char *data = NULL;
        yoke_image image = {.name = path};
        snprintf(path, sizeof path, "%s/tests/fixtures/images/%s", YOKE_SOURCE_DIR,
                 files[(size_t)i % COUNT(files)]);
        EXPECT_OK(yoke_file_read(path, 1 << 20, &data, &image.bytes));
        image.data = data;
        EXPECT_OK(yoke_image_open(&image));
        yoke_image_view view = draw_view(&image, made->size);
        add_row(made, i, &image, &view, true);
        free(data);
    }
    assert_true(made->reduced > 10);
    compare_all(yoke_devices_at(*state, 0), made, ROWS, 7);
    free(made);
}

/* Folders. */

static char folder[64];

static void write_image(const char *path, int width, int height) {
    yoke_image image = draw_image(3, width, height);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(image.data, 1, image.bytes, file), image.bytes);
    assert_int_equal(fclose(file), 0);
    free((void *)image.data);
}

#define TRAINED 22 /* batches of 10: the last has 2 rows, so that some of 4 devices are idle */

static void make_folder(void) {
    static const char *const classes[] = {"",           "/train",   "/val",    "/train/ant",
                                          "/train/bee", "/val/ant", "/val/bee"};
    char path[128];
    snprintf(folder, sizeof folder, "%s/yoke-crop-XXXXXX", P_tmpdir);
    assert_non_null(mkdtemp(folder));
    for (size_t i = 1; i < COUNT(classes); i++) {
        snprintf(path, sizeof path, "%s%s", folder, classes[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    for (int i = 0; i < TRAINED + 11; i++) {
        snprintf(path, sizeof path, "%s/%s/%s/%d.png", folder, i < TRAINED ? "train" : "val",
                 i % 2 == 0 ? "ant" : "bee", i);
        write_image(path, 4 + draw(70), 4 + draw(70));
    }
}

static void remove_folder(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

static const char *spec_of(const char *settings) {
    static char spec[128];
    snprintf(spec, sizeof spec, "images:%s,size=12%s", folder, settings);
    return spec;
}

/* Batches. */

static void scale_batch(yoke_device *device, const yoke_batch *batch, float *inputs) {
    crops *made = calloc(1, sizeof *made);
    yoke_placement none[ROWS] = {{0}};
    made->size = 12;
    size_t first = batch->crops[0].offset, rows = (size_t)batch->rows;
    const yoke_crop *last = &batch->crops[rows - 1];
    memcpy(made->of, batch->crops, rows * sizeof *made->of);
    memcpy(made->pixels, batch->pixels + first, last->offset + yoke_crop_bytes(last, 3) - first);
    float *decoded = decode(device, made, batch->rows,
                            batch->placements != NULL ? batch->placements : none, batch->decoding);
    memcpy(inputs, decoded, rows * 3 * 12 * 12 * sizeof(float));
    free(decoded);
    free(made);
}

static void next_batch(yoke_loader *loader, yoke_batch *batch) {
    *batch = (yoke_batch){.struct_size = sizeof *batch};
    EXPECT_OK(yoke_loader_next(loader, batch, NULL));
}

/* The loader of a rank, for GPUs and for a host. */
static void compare_loaders(yoke_devices *devices, const char *settings,
                            yoke_loader_options options) {
    static float inputs[ROWS * 3 * 12 * 12];
    yoke_dataset *rows = NULL;
    yoke_loader *loaders[2] = {NULL, NULL};
    int compared = 0;
    EXPECT_OK(yoke_dataset_open(&rows, spec_of(settings), YOKE_SPLIT_TRAIN));
    for (int k = 0; k < 2; k++) {
        options.devices = k == 0 ? devices : NULL;
        EXPECT_OK(yoke_loader_create(&loaders[k], rows, &options));
        EXPECT_OK(yoke_loader_begin(loaders[k], 3));
    }
    for (yoke_batch gpu, host;;) {
        next_batch(loaders[0], &gpu);
        next_batch(loaders[1], &host);
        assert_int_equal(gpu.rows, host.rows);
        if (gpu.rows == 0 && gpu.whole_rows == 0) break;
        if (gpu.rows == 0) continue;
        assert_non_null(gpu.crops);
        scale_batch(yoke_devices_at(devices, 0), &gpu, inputs);
        assert_memory_equal(inputs, host.inputs, (size_t)gpu.rows * 3 * 12 * 12 * sizeof(float));
        assert_memory_equal(gpu.labels, host.labels, (size_t)gpu.rows * sizeof *gpu.labels);
        compared += gpu.rows;
    }
    assert_true(compared >= TRAINED / 2 - 1);
    assert_false(yoke_loader_pixels(loaders[0]));
    yoke_loader_destroy(loaders[0]);
    yoke_loader_destroy(loaders[1]);
    yoke_dataset_close(rows);
}

static void a_loader_hands_over_what_becomes_the_hosts_inputs(void **state) {
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    options.batch = 10;
    options.shuffle = true;
    compare_loaders(*state, "", options);
    options.augment = YOKE_AUGMENT_RESIZED_CROP_FLIP;
    options.erasing = 0.5;
    options.threads = 3;
    compare_loaders(*state, "", options);
    compare_loaders(*state, ",decode=exact,resize=40", options);
    options.world = 2;
    for (options.rank = 0; options.rank < 2; options.rank++)
        compare_loaders(*state, "", options);
}

/* A program of an earlier version has no place for crops, without which pixels mean nothing. */
static void a_batch_without_room_for_crops_is_refused(void **state) {
    yoke_dataset *rows = NULL;
    yoke_loader *loader = NULL;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = offsetof(yoke_batch, crops)};
    options.batch = 4;
    options.devices = *state;
    EXPECT_OK(yoke_dataset_open(&rows, spec_of(""), YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_loader_create(&loader, rows, &options));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    assert_int_equal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_ARGUMENT);
    assert_non_null(strstr(yoke_last_error(), "no room for crops"));
    yoke_loader_destroy(loader);
    yoke_dataset_close(rows);
}

/* Training. */

typedef struct course {
    double losses[16], last;
    int steps;
    uint64_t hash;
} course;

static void on_event(const yoke_event *event, void *payload) {
    course *own = payload;
    if (event->kind == YOKE_EVENT_STEP) own->losses[own->steps++] = event->loss;
}

static course learn(yoke_trainer_options options, const char *settings) {
    course run = {.steps = 0};
    yoke_trainer *trainer = NULL;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    options.struct_size = sizeof options;
    options.dataset = spec_of(settings);
    options.model = "resnet20";
    options.batch = 10;
    options.steps = 5;
    options.threads = 1;
    options.on_event = on_event;
    options.payload = &run;
    EXPECT_OK(yoke_trainer_create(&trainer, &options));
    EXPECT_OK(yoke_trainer_run(trainer));
    EXPECT_OK(yoke_trainer_summarize(trainer, &summary));
    run.last = summary.test_loss;
    EXPECT_OK(yoke_data_parallel_hash(yoke_trainer_engine(trainer), &run.hash));
    yoke_trainer_destroy(trainer);
    return run;
}

/* crop=cpu sends rows as pixels. With a change of colours training rows travel so, test rows as
 * crops. */
static void training_is_the_same_wherever_rows_are_cropped(void **state) {
    (void)state;
    for (int way = 0; way < 5; way++) {
        const yoke_data_parallel_options engine = {.struct_size = sizeof engine,
                                                   .schedule = (yoke_schedule)(way % 3),
                                                   .algorithm = YOKE_ALGORITHM_DIRECT,
                                                   .accumulate = way % 2 + 1};
        yoke_trainer_options options = {.devices = devices_of(way < 3 ? way + 1 : 4),
                                        .engine = &engine,
                                        .augment = YOKE_AUGMENT_RESIZED_CROP_FLIP,
                                        .erasing = way % 2 == 0 ? 0.5 : 0,
                                        .evaluate_every = 1};
        if (way == 4) options.color_jitter.brightness = 0.4;
        course cpu = learn(options, ",crop=cpu"), gpu = learn(options, "");
        assert_int_equal(gpu.steps, 5);
        assert_true(gpu.last > 0);
        assert_memory_equal(gpu.losses, cpu.losses, sizeof gpu.losses);
        assert_true(gpu.last == cpu.last && gpu.hash == cpu.hash);
    }
}

/* The crops of rows of 3x12x12. */
static void expect_refused(yoke_shape shape, bool pixels, const char *words) {
    yoke_dataset *rows = NULL;
    yoke_loader *loader = NULL;
    yoke_model *model = NULL;
    yoke_batch batch;
    EXPECT_OK(yoke_dataset_open(&rows, spec_of(""), YOKE_SPLIT_TRAIN));
    EXPECT_OK(yoke_model_create(&model, "line", shape));
    yoke_linear_options fc = {.struct_size = sizeof fc, .name = "fc", .out_features = 2};
    yoke_value flat = yoke_flatten(model, yoke_model_input(model));
    EXPECT_OK(yoke_model_finish(model, yoke_linear(model, flat, &fc), NULL));
    check_engine engine = check_engine_make(
        model, 1, (yoke_data_parallel_options){.batch = 10, .pixels = pixels}, NULL);
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    options.batch = 10;
    options.devices = engine.devices;
    EXPECT_OK(yoke_loader_create(&loader, rows, &options));
    EXPECT_OK(yoke_loader_begin(loader, 0));
    next_batch(loader, &batch);
    assert_int_equal(yoke_data_parallel_step(engine.parallel, &batch, 0.1, NULL),
                     YOKE_ERROR_ARGUMENT);
    if (strstr(yoke_last_error(), words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", yoke_last_error(), words);
    yoke_loader_destroy(loader);
    check_engine_free(&engine);
    yoke_model_destroy(model);
    yoke_dataset_close(rows);
}

static void an_engine_for_pixels_refuses_crops(void **state) {
    (void)state;
    expect_refused((yoke_shape){3, 12, 12, false}, true, "the batch has crops");
}

static void crops_of_another_shape_than_the_models_are_refused(void **state) {
    (void)state;
    expect_refused((yoke_shape){3, 12, 8, false}, false, "photographs of 3x12x12, model 'line'");
    expect_refused((yoke_shape){3, 8, 12, false}, false, "reads 3x8x12");
    expect_refused((yoke_shape){1, 12, 12, false}, false, "reads 1x12x12");
}

static int open_device(void **state) {
    yoke_devices *devices = NULL;
    yoke_devices_options options = {.struct_size = sizeof options, .list = "cuda:0"};
    EXPECT_OK(yoke_devices_open(&devices, &options));
    *state = devices;
    make_folder();
    return 0;
}

static int close_device(void **state) {
    remove_folder();
    yoke_devices_close(*state);
    return 0;
}

int main(void) {
    setenv("YOKE_TEST_BACKEND", "cuda", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gpu_scales_crops_as_the_host_does),
        cmocka_unit_test(scaled_decoding_goes_to_the_gpu_as_well),
        cmocka_unit_test(a_loader_hands_over_what_becomes_the_hosts_inputs),
        cmocka_unit_test(a_batch_without_room_for_crops_is_refused),
        cmocka_unit_test(training_is_the_same_wherever_rows_are_cropped),
        cmocka_unit_test(an_engine_for_pixels_refuses_crops),
        cmocka_unit_test(crops_of_another_shape_than_the_models_are_refused),
    };
    return RUN_ON_DEVICES(tests, open_device, close_device);
}
