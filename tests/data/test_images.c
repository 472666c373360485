/* SPDX-License-Identifier: Apache-2.0 */
/* Files of images become torchvision's pixels; folders become rows and classes. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include "data_folder.h"

#include "data/images.h"
#include "fixtures/fixture.h"

#define SIDE 12
#define VALUES (3 * SIDE * SIDE)

/* A file of tests/fixtures/images. */
typedef struct encoded {
    char path[512];
    unsigned char *data;
    size_t bytes;
} encoded;

static void read_encoded(encoded *file, const char *name) {
    snprintf(file->path, sizeof file->path, "%s/tests/fixtures/images/%s", YOKE_SOURCE_DIR, name);
    must(yoke_file_read(file->path, 1 << 20, &file->data, &file->bytes));
}

static yoke_status open_bytes(yoke_image *image, const unsigned char *data, size_t bytes) {
    *image = (yoke_image){.name = "picture", .data = data, .bytes = bytes};
    return yoke_image_open(image);
}

/* Pixels. */

static yoke_image_view view_of(const json_t *test_case, int resize) {
    const json_t *box = json_object_get(test_case, "box");
    if (json_is_null(box))
        return yoke_image_center(integer(test_case, "width"), integer(test_case, "height"), resize,
                                 SIDE);
    int side[4];
    for (size_t i = 0; i < 4; i++)
        side[i] = (int)json_integer_value(json_array_get(box, i));
    return (yoke_image_view){side[0], side[1], side[2], side[3], SIDE, SIDE, 0, 0};
}

static void expect_pixels(const json_t *test_case, const uint8_t *pixels) {
    const char *hex = json_string_value(json_object_get(test_case, "pixels"));
    assert_int_equal(strlen(hex), 2 * VALUES);
    for (size_t i = 0; i < VALUES; i++) {
        unsigned wanted;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &wanted), 1);
        if (pixels[i] != wanted)
            fail_msg("%s: value %zu is %d, torchvision has %u",
                     json_string_value(json_object_get(test_case, "file")), i, pixels[i], wanted);
    }
}

static void pixels_are_torchvisions_bit_for_bit(void **state) {
    (void)state;
    json_t *fixture = read_fixture("images"), *test_case;
    size_t index;
    assert_int_equal(integer(fixture, "size"), SIDE);
    json_array_foreach(json_object_get(fixture, "cases"), index, test_case) {
        encoded file;
        yoke_image image;
        uint8_t pixels[VALUES];
        read_encoded(&file, json_string_value(json_object_get(test_case, "file")));
        must(open_bytes(&image, file.data, file.bytes));
        assert_int_equal(image.width, integer(test_case, "width"));
        assert_int_equal(image.height, integer(test_case, "height"));
        yoke_image_view view = view_of(test_case, integer(fixture, "resize"));
        must(yoke_image_render(&image, &view, SIDE, false, pixels));
        expect_pixels(test_case, pixels);
        free(file.data);
    }
    assert_true(index >= 30);
    json_decref(fixture);
}

/* At a quarter of its size a JPEG loses detail that the output does not show. */
static void scaled_decoding_stays_near(void **state) {
    (void)state;
    encoded file;
    yoke_image image;
    uint8_t exact[VALUES], scaled[VALUES];
    double difference = 0;
    read_encoded(&file, "progressive.jpg");
    must(open_bytes(&image, file.data, file.bytes));
    yoke_image_view view = {0, 0, image.width, image.height, 9, 9, 0, 0};
    must(yoke_image_render(&image, &view, 9, false, exact));
    must(yoke_image_render(&image, &view, 9, true, scaled));
    for (int i = 0; i < 3 * 9 * 9; i++)
        difference += abs(exact[i] - scaled[i]) / (3.0 * 9 * 9);
    assert_true(difference > 0 && difference < 6);
    free(file.data);
}

/* Random boxes. */

static void boxes_have_the_areas_and_shapes_of_random_resized_crop(void **state) {
    (void)state;
    double smallest = 1, largest = 0, narrowest = 9, widest = 0;
    yoke_augmentation augmentation = {.seed = 5, .epoch = 2};
    for (size_t row = 0; row < 2000; row++) {
        yoke_image_view view = yoke_image_random(640, 480, 224, &augmentation, row);
        double area = (double)view.box_width * view.box_height / (640.0 * 480.0);
        double ratio = (double)view.box_width / view.box_height;
        assert_true(view.left >= 0 && view.left + view.box_width <= 640);
        assert_true(view.top >= 0 && view.top + view.box_height <= 480);
        smallest = fmin(smallest, area);
        largest = fmax(largest, area);
        narrowest = fmin(narrowest, ratio);
        widest = fmax(widest, ratio);
    }
    assert_true(smallest > 0.078 && smallest < 0.1 && largest > 0.9 && largest <= 1);
    assert_true(narrowest > 0.74 && narrowest < 0.77 && widest < 1.35 && widest > 1.3);
}

static void a_box_depends_on_seed_epoch_and_row_alone(void **state) {
    (void)state;
    yoke_augmentation one = {.seed = 5, .epoch = 2}, other = {.seed = 5, .epoch = 3};
    yoke_image_view a = yoke_image_random(640, 480, 224, &one, 7);
    yoke_image_view b = yoke_image_random(640, 480, 224, &one, 7);
    yoke_image_view c = yoke_image_random(640, 480, 224, &other, 7);
    yoke_image_view d = yoke_image_random(640, 480, 224, &one, 8);
    assert_memory_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    assert_memory_not_equal(&a, &d, sizeof a);
}

/* torchvision cuts out the center, of the nearest shape that is allowed. */
static void an_image_too_narrow_for_any_box_gives_its_center(void **state) {
    (void)state;
    yoke_augmentation augmentation = {.seed = 5};
    yoke_image_view wide = yoke_image_random(1000, 3, 224, &augmentation, 0);
    yoke_image_view high = yoke_image_random(3, 1000, 224, &augmentation, 0);
    assert_int_equal(wide.box_width, 4);
    assert_int_equal(wide.box_height, 3);
    assert_int_equal(wide.left, 498);
    assert_int_equal(high.box_height, 4);
    assert_int_equal(high.top, 498);
}

/* Files that are no images. */

static void expect_bad(const unsigned char *data, size_t bytes, const char *words) {
    yoke_image image;
    uint8_t pixels[VALUES];
    yoke_status status = open_bytes(&image, data, bytes);
    if (status == YOKE_OK) {
        yoke_image_view view = yoke_image_center(image.width, image.height, 14, SIDE);
        status = yoke_image_render(&image, &view, SIDE, true, pixels);
    }
    if (status != YOKE_ERROR_DATA || strstr(yoke_last_error(), words) == NULL)
        fail_msg("%s '%s' should contain '%s'", yoke_status_name(status), yoke_last_error(), words);
    assert_non_null(strstr(yoke_last_error(), "picture: "));
}

static void what_is_no_image_is_an_error_that_names_it(void **state) {
    (void)state;
    encoded file;
    read_encoded(&file, "cmyk.jpg");
    expect_bad(file.data, file.bytes, "4 colour components (CMYK?)");
    free(file.data);
    expect_bad((const unsigned char *)"", 0, "empty file");
    expect_bad((const unsigned char *)"GIF89a", 6, "neither a JPEG nor a PNG");
    expect_bad((const unsigned char *)"\xff\xd8\xff\xe0", 4, "");
    expect_bad((const unsigned char *)"\x89PNG\r\n\x1a\n....", 12, "ends early");
}

/* Every cut of a file is noticed, but for what stands behind the pixels. */
static void a_file_that_ends_early_is_an_error(void **state) {
    (void)state;
    static const char *const names[] = {"color.jpg", "progressive.jpg", "color.png", "gray.png"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        encoded file;
        read_encoded(&file, names[i]);
        for (size_t bytes = 20; bytes < file.bytes * 9 / 10; bytes += 37)
            expect_bad(file.data, bytes, "");
        free(file.data);
    }
}

/* A PNG's header may claim any size: chunk IHDR, whose checksum is right. */
static void a_bomb_is_refused_before_memory_is_taken(void **state) {
    (void)state;
    unsigned char bomb[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0";
    unsigned char file[sizeof bomb - 1 + 12] = {0};
    memcpy(file, bomb, sizeof bomb - 1);
    unsigned long sum = 0xffffffff;
    for (size_t i = 12; i < sizeof bomb - 1; i++) {
        sum ^= file[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum & 1 ? sum >> 1 ^ 0xedb88320 : sum >> 1;
    }
    sum ^= 0xffffffff;
    for (int i = 0; i < 4; i++)
        file[sizeof bomb - 1 + (size_t)i] = (unsigned char)(sum >> (24 - 8 * i));
    memcpy(file + sizeof file - 4, "IDAT", 4);
    expect_bad(file, sizeof file, "65535 x 65535 pixels");
}

/* A progressive JPEG of empty scans: libjpeg walks over the whole picture for each. */
static size_t make_scans(uint8_t *file, unsigned side, int scans) {
    static const uint8_t table[22] = {0xff, 0xc4, 0, 20, 0, 1};
    static const uint8_t scan[] = {0xff, 0xda, 0, 8, 1, 1, 0, 0, 0, 0};
    const uint8_t high = (uint8_t)(side >> 8), low = (uint8_t)side;
    const uint8_t frame[] = {0xff, 0xc2, 0, 11, 8, high, low, high, low, 1, 1, 0x11, 0};
    const uint8_t begin[] = {0xff, 0xd8, 0xff, 0xdb, 0, 67, 0};
    uint8_t *end = mempcpy(file, begin, sizeof begin);
    end = (uint8_t *)memset(end, 1, 64) + 64;
    end = mempcpy(end, frame, sizeof frame);
    end = mempcpy(end, table, sizeof table);
    for (int i = 0; i < scans; i++)
        end = mempcpy(end, scan, sizeof scan);
    end = mempcpy(end, "\xff\xd9", 2);
    return (size_t)(end - file);
}

static void a_small_progressive_file_asks_for_bounded_work(void **state) {
    (void)state;
    uint8_t file[2048], pixels[VALUES];
    yoke_image image;
    yoke_image_view view = yoke_image_center(32, 32, 14, SIDE);
    must(open_bytes(&image, file, make_scans(file, 32, 100)));
    must(yoke_image_render(&image, &view, SIDE, false, pixels));
    expect_bad(file, make_scans(file, 32, 101), "more than 100 scans of 32 x 32 pixels");
    expect_bad(file, make_scans(file, 13000, 10), "13000 x 13000 pixels; at most 67108864 in all");
}

/* Chunk texts that unpack to 64 times 4 MB; libpng keeps each. */
static void texts_of_a_png_are_not_unpacked(void **state) {
    (void)state;
    encoded file;
    yoke_image image;
    struct rusage before, after;
    enum { TEXTS = 64, UNPACKED = 4 << 20, HEADER = 33 };
    uint8_t *zeros = calloc(1, UNPACKED), chunk[8192] = {0, 0, 0, 0, 'z', 'T', 'X', 't', 'n'};
    uLongf packed = sizeof chunk - 24;
    assert_int_equal(compress2(chunk + 11, &packed, zeros, UNPACKED, 9), Z_OK);
    size_t length = 3 + packed, whole = length + 12;
    uint32_t sum = (uint32_t)crc32(0, chunk + 4, (uInt)(length + 4));
    for (int i = 0; i < 4; i++) {
        chunk[i] = (uint8_t)(length >> (24 - 8 * i));
        chunk[8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
    }
    read_encoded(&file, "color.png");
    uint8_t *bomb = malloc(file.bytes + TEXTS * whole);
    memcpy(bomb, file.data, HEADER);
    for (size_t i = 0; i < TEXTS; i++)
        memcpy(bomb + HEADER + i * whole, chunk, whole);
    memcpy(bomb + HEADER + TEXTS * whole, file.data + HEADER, file.bytes - HEADER);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    must(open_bytes(&image, bomb, file.bytes + TEXTS * whole));
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
    free(bomb);
    free(file.data);
    free(zeros);
}

static void a_stop_ends_every_decoder(void **state) {
    (void)state;
    static const char *const names[] = {"color.jpg", "progressive.jpg", "color.png"};
    static atomic_bool flags[2];
    uint8_t pixels[VALUES];
    for (size_t i = 0; i < 2 * sizeof names / sizeof *names; i++) {
        encoded file;
        yoke_image image;
        read_encoded(&file, names[i / 2]);
        must(open_bytes(&image, file.data, file.bytes));
        image.stops = (yoke_stops){&flags[0], &flags[1]};
        yoke_image_view view = yoke_image_center(image.width, image.height, 14, SIDE);
        must(yoke_image_render(&image, &view, SIDE, false, pixels));
        atomic_store(&flags[i % 2], true);
        assert_int_equal(yoke_image_render(&image, &view, SIDE, false, pixels),
                         YOKE_ERROR_CANCELLED);
        atomic_store(&flags[i % 2], false);
        free(file.data);
    }
}

/* Folders. */

static void make_tree(const char *const *files) {
    encoded picture;
    char path[512];
    read_encoded(&picture, "color.jpg");
    for (; *files != NULL; files++) {
        snprintf(path, sizeof path, "%s/%s", data_folder, *files);
        for (char *slash = path + strlen(data_folder) + 1; (slash = strchr(slash, '/')) != NULL;) {
            *slash = '\0';
            mkdir(path, 0700);
            *slash++ = '/';
        }
        write_file(*files, picture.data, picture.bytes);
    }
    free(picture.data);
}

static int remove_tree(void **state) {
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", data_folder);
    return system(command);
}

static size_t rows_of(const char *settings, yoke_split split, yoke_dataset_info *info) {
    char format[128];
    yoke_dataset *dataset = NULL;
    snprintf(format, sizeof format, "images:%s%s", data_folder, settings);
    must(yoke_dataset_open(&dataset, format, split));
    *info = (yoke_dataset_info){.struct_size = sizeof *info};
    must(yoke_dataset_describe(dataset, info));
    assert_string_equal(info->class_names[0], "ant");
    assert_string_equal(info->class_names[1], "bee");
    yoke_dataset_close(dataset);
    return info->rows;
}

static void train_and_val_are_the_splits(void **state) {
    (void)state;
    static const char *const files[] = {"train/bee/1.jpg",
                                        "train/ant/2.JPEG",
                                        "train/ant/1.jpg",
                                        "train/ant/more/3.jpg",
                                        "train/ant/readme.txt",
                                        "val/bee/1.jpg",
                                        NULL};
    yoke_dataset_info info;
    make_tree(files);
    assert_int_equal(rows_of("", YOKE_SPLIT_TRAIN, &info), 4);
    assert_int_equal(info.classes, 2);
    assert_int_equal(info.shape.height, 224);
    assert_int_equal(rows_of(",size=32", YOKE_SPLIT_TEST, &info), 1);
    assert_int_equal(info.shape.width, 32);
}

static void without_val_a_part_of_each_class_is_the_test_split(void **state) {
    (void)state;
    static const char *const files[] = {"ant/1.jpg", "ant/2.jpg", "ant/3.jpg", "ant/4.jpg",
                                        "bee/1.jpg", "bee/2.jpg", NULL};
    yoke_dataset_info info;
    make_tree(files);
    assert_int_equal(rows_of("", YOKE_SPLIT_TRAIN, &info), 4);
    assert_int_equal(rows_of("", YOKE_SPLIT_TEST, &info), 2);
    assert_int_equal(rows_of(",validation=0.5", YOKE_SPLIT_TRAIN, &info), 3);
    assert_int_equal(rows_of(",validation=0.5", YOKE_SPLIT_TEST, &info), 3);
}

static void folders_that_do_not_fit_are_refused(void **state) {
    (void)state;
    static const char *const one[] = {"ant/1.jpg", NULL};
    static const char *const text[] = {"bee/readme.txt", NULL};
    static const char *const fly[] = {"train/ant/1.jpg", "train/bee/1.jpg", "val/fly/1.jpg",
                                      "val/ant/1.jpg", NULL};
    expect_error("images", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "0 classes; a folder for each");
    make_tree(one);
    expect_error("images", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "1 class; a folder for each");
    make_tree(text);
    expect_error("images", YOKE_SPLIT_TRAIN, YOKE_ERROR_DATA, "bee: no .jpg, .jpeg or .png file");
    make_tree(fly);
    expect_error("images", YOKE_SPLIT_TEST, YOKE_ERROR_DATA, "val/fly: train/ has no class");
}

static void settings_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *spec, *words;
    } cases[] = {{"images:/nowhere", "/nowhere"},
                 {"images:/tmp,sise=32", "did you mean 'size'"},
                 {"images:/tmp,size=7", "size=8..4096"},
                 {"images:/tmp,size=64,resize=32", "resize=32 is smaller than size=64"},
                 {"images:/tmp,validation=2", "validation=0.001..0.9"},
                 {"images:/tmp,decode=fast", "decode=scaled|exact"},
                 {"images:/tmp,crop=tpu", "crop=gpu|cpu"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        yoke_dataset *dataset;
        assert_int_not_equal(yoke_dataset_open(&dataset, cases[i].spec, YOKE_SPLIT_TRAIN), YOKE_OK);
        assert_null(dataset);
        if (strstr(yoke_last_error(), cases[i].words) == NULL)
            fail_msg("'%s' should contain '%s'", yoke_last_error(), cases[i].words);
    }
}

/* Loading. */

static void batches_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    static const char *const files[] = {"ant/1.jpg", "ant/2.jpg", "ant/3.jpg",
                                        "bee/1.jpg", "bee/2.jpg", NULL};
    float inputs[2][4 * 3 * 16 * 16] = {{0}};
    char spec[128];
    make_tree(files);
    snprintf(spec, sizeof spec, "images:%s,size=16,validation=0.3", data_folder);
    for (int run = 0; run < 2; run++) {
        yoke_dataset *dataset;
        yoke_loader *loader;
        yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
        yoke_batch batch = {.struct_size = sizeof batch};
        options.batch = 4;
        options.shuffle = true;
        options.augment = YOKE_AUGMENT_RESIZED_CROP_FLIP;
        options.threads = run == 0 ? 1 : 4;
        must(yoke_dataset_open(&dataset, spec, YOKE_SPLIT_TRAIN));
        must(yoke_loader_create(&loader, dataset, &options));
        must(yoke_loader_begin(loader, 1));
        must(yoke_loader_next(loader, &batch, NULL));
        assert_true(batch.rows >= 3);
        memcpy(inputs[run], batch.inputs, (size_t)batch.rows * 3 * 16 * 16 * sizeof(float));
        yoke_loader_destroy(loader);
        yoke_dataset_close(dataset);
    }
    assert_memory_equal(inputs[0], inputs[1], sizeof inputs[0]);
    assert_memory_not_equal(inputs[0], inputs[0] + 3 * 16 * 16, 3 * 16 * 16 * sizeof(float));
}

static void a_damaged_file_stops_its_batch_with_its_name(void **state) {
    (void)state;
    static const char *const files[] = {"ant/1.jpg", "ant/2.jpg", "bee/1.jpg", "bee/2.jpg", NULL};
    yoke_dataset *dataset;
    yoke_loader *loader;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    make_tree(files);
    write_file("bee/1.jpg", (const uint8_t *)"no image", 8);
    write_file("bee/2.jpg", (const uint8_t *)"no image", 8);
    must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
    options.batch = 4;
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    assert_int_equal(yoke_loader_next(loader, &batch, NULL), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "/bee/"));
    assert_non_null(strstr(yoke_last_error(), "; yoke_dataset_skip_bad leaves such rows out"));
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static size_t count_rows(void) {
    yoke_dataset *dataset;
    must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
    size_t rows = dataset->rows;
    yoke_dataset_close(dataset);
    return rows;
}

/* Two links to folders above would be 2^16 folders, each with the picture. */
static void a_link_to_a_folder_above_it_is_not_followed(void **state) {
    (void)state;
    static const char *const files[] = {"train/ant/in/1.jpg", "train/bee/1.jpg", "val/ant/1.jpg",
                                        NULL};
    make_tree(files);
    assert_int_equal(symlink("..", in_folder("train/ant/in/a")), 0);
    assert_int_equal(symlink(".", in_folder("train/ant/in/b")), 0);
    assert_int_equal(count_rows(), 2);
    assert_int_equal(symlink("../ant/in", in_folder("train/bee/other")), 0); /* no ring */
    assert_int_equal(count_rows(), 3);
}

typedef struct bad_list {
    char text[2000];
    size_t count;
} bad_list;

static void add_bad(const yoke_bad_row *bad, void *payload) {
    bad_list *list = payload;
    list->count++;
    strncat(list->text, bad->text, sizeof list->text - strlen(list->text) - 2);
    strcat(list->text, "\n");
}

static void copy_fixture(const char *name, const char *fixture, size_t bytes) {
    encoded file;
    read_encoded(&file, fixture);
    write_file(name, file.data, bytes < file.bytes ? bytes : file.bytes);
    free(file.data);
}

/* Beside files that are only unusual: another format than their name says, one pixel, gray. */
static void what_is_no_regular_file_is_a_bad_row(void **state) {
    (void)state;
    static const char *const files[] = {"train/ant/1.jpg", "train/bee/1.jpg", "val/ant/1.jpg",
                                        NULL};
    yoke_dataset *dataset;
    bad_list found = {.count = 0};
    make_tree(files);
    assert_int_equal(symlink("/dev/zero", in_folder("train/ant/2.jpg")), 0);
    assert_int_equal(mkfifo(in_folder("train/bee/2.jpg"), 0600), 0);
    must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
    must(yoke_dataset_skip_bad(dataset, 1, add_bad, &found));
    assert_int_equal(found.count, 2);
    assert_non_null(strstr(found.text, "expected a regular file"));
    yoke_dataset_close(dataset);
}

static void damaged_files_are_named_and_left_out(void **state) {
    (void)state;
    static const char *const files[] = {"ant/1.jpg", "ant/2.jpg", "ant/3.jpg", "ant/4.jpg",
                                        "bee/1.jpg", "bee/2.jpg", "bee/3.jpg", "bee/4.jpg",
                                        "cat/1.jpg", NULL};
    make_tree(files);
    copy_fixture("ant/2.jpg", "cmyk.jpg", SIZE_MAX);
    copy_fixture("ant/3.jpg", "color.png", SIZE_MAX);
    copy_fixture("bee/1.jpg", "color.jpg", 2000);
    copy_fixture("bee/2.jpg", "one.png", SIZE_MAX);
    copy_fixture("bee/3.jpg", "gray.png", 2300);
    copy_fixture("bee/4.jpg", "gray.png", SIZE_MAX);
    write_file("ant/4.jpg", (const uint8_t *)"GIF89a", 6);
    for (int threads = 1; threads <= 3; threads += 2) {
        yoke_dataset *dataset;
        bad_list list = {.count = 0};
        size_t all = 0;
        must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
        all = dataset->rows;
        must(yoke_dataset_skip_bad(dataset, threads, add_bad, &list));
        assert_int_equal(dataset->rows, all - list.count);
        yoke_dataset_close(dataset);
        must(open_spec(&dataset, "images", YOKE_SPLIT_TEST));
        all = dataset->rows;
        size_t before = list.count;
        must(yoke_dataset_skip_bad(dataset, threads, add_bad, &list));
        assert_int_equal(dataset->rows, all - (list.count - before));
        yoke_dataset_close(dataset);
        assert_int_equal(list.count, 4);
        assert_non_null(strstr(list.text, "/ant/2.jpg: 4 colour components (CMYK?)"));
        assert_non_null(strstr(list.text, "/ant/4.jpg: neither a JPEG nor a PNG"));
        assert_non_null(strstr(list.text, "/bee/1.jpg: "));
        assert_non_null(strstr(list.text, "/bee/3.jpg: the file ends early"));
    }
}

/* The rows that stay keep their labels, and an epoch goes to its end. */
static void an_epoch_without_the_bad_rows_goes_to_its_end(void **state) {
    (void)state;
    static const char *const files[] = {"train/ant/1.jpg", "train/ant/2.jpg", "train/bee/1.jpg",
                                        "train/bee/2.jpg", "val/ant/1.jpg",   NULL};
    yoke_dataset *dataset;
    yoke_loader *loader;
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_batch batch = {.struct_size = sizeof batch};
    make_tree(files);
    write_file("train/ant/1.jpg", (const uint8_t *)"no image", 8);
    must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
    must(yoke_dataset_skip_bad(dataset, 0, NULL, NULL));
    options.batch = 4;
    must(yoke_loader_create(&loader, dataset, &options));
    must(yoke_loader_begin(loader, 0));
    must(yoke_loader_next(loader, &batch, NULL));
    assert_int_equal(batch.rows, 3);
    static const int32_t labels[] = {0, 1, 1};
    assert_memory_equal(batch.labels, labels, sizeof labels);
    must(yoke_loader_next(loader, &batch, NULL));
    assert_int_equal(batch.rows, 0);
    yoke_loader_destroy(loader);
    yoke_dataset_close(dataset);
}

static void a_folder_with_no_readable_file_is_refused(void **state) {
    (void)state;
    static const char *const files[] = {"train/ant/1.jpg", "train/bee/1.jpg", "val/ant/1.jpg",
                                        NULL};
    yoke_dataset *dataset;
    make_tree(files);
    write_file("train/ant/1.jpg", (const uint8_t *)"no image", 8);
    write_file("train/bee/1.jpg", (const uint8_t *)"no image", 8);
    must(open_spec(&dataset, "images", YOKE_SPLIT_TRAIN));
    assert_int_equal(yoke_dataset_skip_bad(dataset, 2, NULL, NULL), YOKE_ERROR_DATA);
    assert_non_null(strstr(yoke_last_error(), "none of the 2 files can be read; the first: "));
    assert_non_null(strstr(yoke_last_error(), "/ant/1.jpg"));
    yoke_dataset_close(dataset);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_tree)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_torchvisions_bit_for_bit),
        cmocka_unit_test(scaled_decoding_stays_near),
        cmocka_unit_test(boxes_have_the_areas_and_shapes_of_random_resized_crop),
        cmocka_unit_test(a_box_depends_on_seed_epoch_and_row_alone),
        cmocka_unit_test(an_image_too_narrow_for_any_box_gives_its_center),
        cmocka_unit_test(what_is_no_image_is_an_error_that_names_it),
        cmocka_unit_test(a_file_that_ends_early_is_an_error),
        cmocka_unit_test(a_bomb_is_refused_before_memory_is_taken),
        cmocka_unit_test(a_small_progressive_file_asks_for_bounded_work),
        cmocka_unit_test(texts_of_a_png_are_not_unpacked),
        cmocka_unit_test(a_stop_ends_every_decoder),
        IN_FOLDER(train_and_val_are_the_splits),
        IN_FOLDER(without_val_a_part_of_each_class_is_the_test_split),
        IN_FOLDER(folders_that_do_not_fit_are_refused),
        cmocka_unit_test(settings_are_checked),
        IN_FOLDER(batches_do_not_depend_on_the_number_of_threads),
        IN_FOLDER(a_damaged_file_stops_its_batch_with_its_name),
        IN_FOLDER(a_link_to_a_folder_above_it_is_not_followed),
        IN_FOLDER(what_is_no_regular_file_is_a_bad_row),
        IN_FOLDER(damaged_files_are_named_and_left_out),
        IN_FOLDER(an_epoch_without_the_bad_rows_goes_to_its_end),
        IN_FOLDER(a_folder_with_no_readable_file_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
