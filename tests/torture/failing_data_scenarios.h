/* SPDX-License-Identifier: Apache-2.0 */
/* Scenarios of test_allocator.c: rows of every kind, and whole runs of a trainer. */
#ifndef FAILING_DATA_SCENARIOS_H
#define FAILING_DATA_SCENARIOS_H

#include <fcntl.h>
#include <zlib.h>

#include "failing_scenarios.h"

/* Files of rows, made once. */

static inline void write_bytes(const char *name, const void *bytes, size_t count) {
    FILE *file = fopen(at_path(name), "wb");
    if (file == NULL || fwrite(bytes, 1, count, file) != count || fclose(file) != 0) abort();
}

static inline void make_folder_of(const char *name) {
    if (mkdir(at_path(name), 0700) != 0) abort();
}

static inline void copy_fixture(const char *from, const char *name) {
    char path[256], bytes[1 << 16];
    snprintf(path, sizeof path, "%s/images/%s", FIXTURES, from);
    FILE *file = fopen(path, "rb");
    if (file == NULL) abort();
    size_t count = fread(bytes, 1, sizeof bytes, file);
    (void)fclose(file);
    write_bytes(name, bytes, count);
}

static inline void make_idx(const char *name, const uint8_t *bytes, size_t count, bool packed) {
    if (!packed) {
        write_bytes(name, bytes, count);
        return;
    }
    gzFile file = gzopen(at_path(name), "wb");
    if (file == NULL || gzwrite(file, bytes, (unsigned)count) != (int)count || gzclose(file) != 0)
        abort();
}

static inline void make_mnist(void) {
    static const char *const splits[] = {"train", "t10k"};
    uint8_t images[16 + 2 * 784] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 28, 0, 0, 0, 28, 200};
    const uint8_t labels[8 + 2] = {0, 0, 8, 1, 0, 0, 0, 2, 7, 3};
    char name[64];
    make_folder_of("mnist");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "mnist/%s-images-idx3-ubyte%s", splits[i], i ? ".gz" : "");
        make_idx(name, images, sizeof images, i == 1);
        snprintf(name, sizeof name, "mnist/%s-labels-idx1-ubyte%s", splits[i], i ? ".gz" : "");
        make_idx(name, labels, sizeof labels, i == 1);
    }
}

static inline void make_row_files(void) {
    static const char text[] = "the quick brown fox jumps over the lazy dog. "
                               "the quick brown fox jumps over the lazy dog. ";
    static const char pairs[] = "ab\tba\nc\tcc\nabc\tcba\na\ta\nb\tb\nc\tc\n";
    static const char table[] = "x,y,kind\n1,2,a\n2,1,b\n3,3,a\n4,0,b\n5,1,a\n6,2,b\n";
    static uint8_t records[2 * 3074] = {1};
    static const char *const classes[] = {"images", "images/a", "images/b"};
    static const char *const pictures[] = {"color.png", "gray.png", "color.jpg", "wide.png"};
    char name[64];
    make_folder_of("cifar10");
    write_bytes("cifar10/data_batch_1.bin", records, 2 * 3073);
    write_bytes("cifar10/test_batch.bin", records, 2 * 3073);
    make_folder_of("cifar100");
    write_bytes("cifar100/train.bin", records, 2 * 3074);
    write_bytes("cifar100/test.bin", records, 2 * 3074);
    make_mnist();
    for (int i = 0; i < 3; i++)
        make_folder_of(classes[i]);
    for (int i = 0; i < 8; i++) {
        snprintf(name, sizeof name, "%s/%d-%s", classes[1 + i / 4], i, pictures[i % 4]);
        copy_fixture(pictures[i % 4], name);
    }
    write_bytes("text.txt", text, sizeof text - 1);
    write_bytes("pairs.tsv", pairs, sizeof pairs - 1);
    write_bytes("table.csv", table, sizeof table - 1);
}

/* Datasets and loaders. */

static inline yoke_status load_rows(made *m, bool shuffle) {
    yoke_dataset_info info = {.struct_size = sizeof info};
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    yoke_loss_options loss = YOKE_LOSS_OPTIONS_INIT;
    TRY(yoke_dataset_describe(m->dataset, &info));
    TRY(yoke_dataset_default_loss(m->dataset, &loss));
    options.batch = 2, options.threads = shuffle ? 2 : 1, options.shuffle = shuffle;
    TRY(yoke_loader_create(&m->loader, m->dataset, &options));
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        yoke_batch batch = {.struct_size = sizeof batch};
        TRY(yoke_loader_begin(m->loader, epoch));
        do
            TRY(yoke_loader_next(m->loader, &batch, NULL));
        while (batch.rows > 0);
    }
    return YOKE_OK;
}

static int bad_rows;

static inline void count_bad(const yoke_bad_row *bad, void *payload) {
    (void)bad, (void)payload;
    bad_rows++;
}

static inline yoke_status load_spec(made *m, const char *spec) {
    bad_rows = 0;
    TRY(yoke_dataset_open(&m->test, spec_of(spec), YOKE_SPLIT_TEST));
    TRY(yoke_dataset_open(&m->dataset, spec_of(spec), YOKE_SPLIT_TRAIN));
    TRY(yoke_dataset_skip_bad(m->dataset, 2, count_bad, NULL));
    if (bad_rows > 0) return yoke_error_raise(YOKE_ERROR_INTERNAL, "good rows are called bad");
    return load_rows(m, true);
}

#define ROWS_OF(name, spec)                                                                        \
    static inline yoke_status name(made *m) {                                                      \
        return load_spec(m, spec);                                                                 \
    }
ROWS_OF(rows_of_synthetic, "synthetic:3x8x8,classes=3,rows=6")
ROWS_OF(rows_of_cifar10, "cifar10:@/cifar10")
ROWS_OF(rows_of_cifar100, "cifar100:@/cifar100")
ROWS_OF(rows_of_mnist, "mnist:@/mnist")
ROWS_OF(rows_of_images, "images:@/images,size=8,validation=0.5")
ROWS_OF(rows_of_text, "text:@/text.txt,context=4")
ROWS_OF(rows_of_text_tokens, "text:@/text.txt,context=2,tokenizer=" FIXTURES "/tokenizer")
ROWS_OF(rows_of_pairs, "pairs:@/pairs.tsv,validation=0.3")
ROWS_OF(rows_of_npy,
        "npy:" FIXTURES "/arrays/pixels.npy," FIXTURES "/arrays/labels.npy,validation=0.3")
ROWS_OF(rows_of_npz, "npz:" FIXTURES "/arrays/keras.npz")
ROWS_OF(rows_of_csv, "csv:@/table.csv,label=kind,validation=0.4")

enum { OWN_ROWS = 6, OWN_WIDTH = 3 };

static inline yoke_status own_rows(made *m) {
    static const float inputs[OWN_ROWS * OWN_WIDTH] = {1, 2, 3}, more[OWN_ROWS] = {1, 1, 2};
    static const int32_t labels[OWN_ROWS] = {0, 1, 1, 0, 1, 1};
    const yoke_row_input length = {sizeof length, "length", yoke_shape_vector(1), more};
    yoke_arrays arrays = {.struct_size = sizeof arrays,
                          .rows = OWN_ROWS,
                          .shape = yoke_shape_vector(OWN_WIDTH),
                          .inputs = inputs,
                          .classes = 2,
                          .labels = labels,
                          .more_inputs = &length,
                          .more_input_count = 1};
    TRY(yoke_dataset_from_arrays(&m->dataset, &arrays));
    TRY(yoke_dataset_limit(m->dataset, 4));
    yoke_loader_options options = YOKE_LOADER_OPTIONS_INIT;
    options.batch = 2, options.shuffle = true, options.sampling = YOKE_SAMPLING_BALANCED;
    TRY(yoke_loader_create(&m->loader, m->dataset, &options));
    TRY(yoke_loader_begin(m->loader, 0));
    yoke_loader_destroy(m->loader);
    m->loader = NULL;
    return load_rows(m, true);
}

static inline yoke_status read_own_row(void *payload, size_t row, float *input, int32_t *label,
                                       float *targets) {
    (void)payload, (void)targets;
    for (int i = 0; i < OWN_WIDTH; i++)
        input[i] = (float)row;
    *label = (int32_t)(row % 2);
    return YOKE_OK;
}

static inline yoke_status rows_of_a_callback(made *m) {
    yoke_row_source source = {.struct_size = sizeof source,
                              .rows = OWN_ROWS,
                              .shape = yoke_shape_vector(OWN_WIDTH),
                              .classes = 2,
                              .read = read_own_row};
    TRY(yoke_dataset_from_callback(&m->dataset, &source));
    return load_rows(m, true);
}

static inline yoke_status next_own_rows(void *payload, int room, float *inputs, int32_t *labels,
                                        float *targets, int *count) {
    int *given = payload;
    for (*count = 0; *count < room && *given < OWN_ROWS; ++*count, ++*given)
        TRY(read_own_row(NULL, (size_t)*given, inputs + *count * OWN_WIDTH, labels + *count,
                         targets));
    return YOKE_OK;
}

static inline yoke_status rewind_own_rows(void *payload, uint64_t epoch) {
    (void)epoch;
    *(int *)payload = 0;
    return YOKE_OK;
}

static inline yoke_status rows_of_a_stream(made *m) {
    static int given;
    yoke_row_stream stream = {.struct_size = sizeof stream,
                              .shape = yoke_shape_vector(OWN_WIDTH),
                              .classes = 2,
                              .next = next_own_rows,
                              .rewind = rewind_own_rows,
                              .payload = &given};
    TRY(yoke_dataset_from_stream(&m->dataset, &stream));
    return load_rows(m, false);
}

static inline yoke_status evaluated_rows(made *m) {
    yoke_evaluation_info info = {.struct_size = sizeof info};
    yoke_loader_options loader = YOKE_LOADER_OPTIONS_INIT;
    loader.batch = BATCH_ROWS;
    TRY(open_mlp(m));
    TRY(yoke_dataset_open(&m->dataset, "synthetic:3x8x8,classes=3,rows=10", YOKE_SPLIT_TRAIN));
    TRY(yoke_loader_create(&m->loader, m->dataset, &loader));
    TRY(yoke_evaluation_run(&m->evaluation, m->engine, m->loader));
    return yoke_evaluation_describe(m->evaluation, &info);
}

/* Trainers. */

static inline yoke_trainer_options small_run(const yoke_data_parallel_options *engine) {
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    options.model = "mlp:width=8";
    options.dataset = "synthetic:3x8x8,classes=3,rows=10";
    options.devices = "2xcpu", options.threads = 1;
    options.engine = engine;
    options.batch = BATCH_ROWS, options.steps = 3;
    options.loader_threads = 2;
    return options;
}

static inline yoke_status run_to_end(made *m, const yoke_trainer_options *options) {
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_progress progress = {.struct_size = sizeof progress};
    TRY(yoke_trainer_create(&m->trainer, options));
    TRY(yoke_trainer_run(m->trainer));
    TRY(yoke_trainer_progress(m->trainer, &progress));
    return yoke_trainer_summarize(m->trainer, &summary);
}

static inline void empty_saves(void) {
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", at_path("saves"));
    if (system(command) != 0) abort();
}

static inline yoke_status run_with_files(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    options.save = at_path("saved"), options.metrics = at_path("metrics.jsonl");
    options.trace = at_path("trace.json"), options.checkpoint_dir = at_path("saves");
    options.checkpoint_unit = YOKE_CHECKPOINT_STEPS;
    options.keep_best = true, options.misclassified = 2, options.evaluate_every = 1;
    empty_saves();
    TRY(run_to_end(m, &options));
    yoke_predictions predictions = {.struct_size = sizeof predictions};
    return yoke_trainer_predictions(m->trainer, &predictions);
}

/* Goes on from the checkpoint that the set-up made. */
static inline yoke_status resumed_run(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    options.resume = at_path("first/step-00000003.safetensors");
    options.steps = 4;
    options.resume_anyway = "steps";
    return run_to_end(m, &options);
}

static inline yoke_status many_options(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0, engine.ema_decay = 0.5;
    yoke_trainer_options options = small_run(&engine);
    options.model = "resnet20", options.devices = "cpu";
    options.augment = YOKE_AUGMENT_CROP_FLIP, options.mixup = 0.2, options.limit_rows = 9;
    options.balanced_class_weights = false, options.patience = 1, options.evaluate_every = 1;
    options.lr_schedule = YOKE_LR_PLATEAU, options.test_views = 2;
    options.sampling = YOKE_SAMPLING_BALANCED;
    return run_to_end(m, &options);
}

static inline yoke_status rows_by_length(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    options.model = "transformer:layers=1,width=8,heads=2";
    options.dataset = spec_of("pairs:@/pairs.tsv,validation=0.3");
    options.length_buckets = 2, options.sampling = YOKE_SAMPLING_BY_LENGTH;
    return run_to_end(m, &options);
}

static inline yoke_status run_in_mode(made *m, yoke_mode mode) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    options.mode = mode;
    return run_to_end(m, &options);
}

static inline yoke_status asynchronous_run(made *m) {
    return run_in_mode(m, YOKE_MODE_ASYNC);
}

static inline yoke_status local_run(made *m) {
    return run_in_mode(m, YOKE_MODE_LOCAL);
}

static inline yoke_status surviving_run(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0, engine.shards = 2, engine.fault = "error:1@1";
    yoke_trainer_options options = small_run(&engine);
    options.survive = true;
    return run_to_end(m, &options);
}

static inline yoke_status resized_run(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    TRY(yoke_trainer_create(&m->trainer, &options));
    TRY(yoke_trainer_resize(m->trainer, "3xcpu"));
    return yoke_trainer_run(m->trainer);
}

static inline yoke_status learning_rate_search(made *m) {
    yoke_data_parallel_options engine = engine_options();
    engine.batch = 0;
    yoke_trainer_options options = small_run(&engine);
    yoke_lr_find_options how = YOKE_LR_FIND_OPTIONS_INIT;
    yoke_lr_find_result found = {.struct_size = sizeof found};
    how.steps = 20;
    TRY(yoke_trainer_create(&m->trainer, &options));
    return yoke_trainer_find_lr(m->trainer, &how, &found);
}

#endif
