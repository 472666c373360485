/* SPDX-License-Identifier: Apache-2.0 */
/* The door of data: makes batches of files, arrays and callbacks. */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include <stdatomic.h>

#include "base/base.h"
#include "yoke/dataset.h"

typedef struct yoke_image_folder yoke_image_folder;   /* data/images.h */
typedef struct yoke_text yoke_text;                   /* data/text_file.h */
typedef struct yoke_stream_reader yoke_stream_reader; /* data/row_stream.h */

/* An input of each row beside the first. */
typedef struct yoke_stored_input {
    char name[48];
    yoke_shape shape;
    const float *floats; /* [stored rows, values of a row]; NULL: the row source writes them */
    void *owned;         /* the same if they are the dataset's, or NULL */
} yoke_stored_input;

/* Stored rows are bytes (0..255), floats, files of images, a text, or a callback that generates
 * them.
 * Opening checks shape and labels. */
struct yoke_dataset {
    char name[32];
    size_t rows; /* 0: a row stream's, unknown */
    /* [rows]: the stored row of each, ascending; owned. NULL: row i is stored row i */
    uint32_t *kept;
    yoke_shape shape;
    int classes, target_count;
    int label_count;                               /* labels of a row; 0: 1 */
    bool unlabelled;                               /* some labels are YOKE_NO_LABEL */
    yoke_stored_input more[YOKE_INPUTS_LIMIT - 1]; /* row_inputs.h */
    int more_count;
    float mean[4], std[4];      /* channels past the fourth use the fourth's */
    float *means, *stds;        /* [channels], owned: of a table's columns, instead of these; or
                                         NULL */
    const uint8_t *bytes;       /* [stored rows, channels, height, width], or NULL */
    const float *floats;        /* [stored rows, channels, height, width], or NULL */
    const int32_t *labels;      /* [stored rows, labels of a row], or NULL */
    const float *targets;       /* [stored rows, target_count], or NULL */
    yoke_image_folder *images;  /* owned, or NULL */
    yoke_text *text;            /* owned, or NULL */
    yoke_row_source source;     /* read, read_inputs or read_batch != NULL: makes rows on demand */
    yoke_stream_reader *stream; /* owned, or NULL */
    const char **class_names;   /* [classes], or NULL */
    const char **feature_names; /* [channels], owned, or NULL */
    void *feature_text;         /* owned: what they point to */
    int resize;                 /* images: the shorter side before the crop; 0: none */
    bool exact;                 /* images: Pillow's pixels */
    bool host_crop;             /* images: the host crops and scales for GPUs, too */
    void *owned[4];             /* freed on close: pixels, labels, a text and its class names */
    yoke_file_mapping mapping;  /* of pixels, or none */
    atomic_int loaders;         /* that read its rows */
};

/* Loaders read their dataset without a lock, so it stays as it is from the first loader on. hold:
 * change is 1 or -1. check_free: ARGUMENT when there is a loader, or `dataset` is NULL. */
void yoke_dataset_hold(const yoke_dataset *dataset, int change);
yoke_status yoke_dataset_check_free(const yoke_dataset *dataset, const char *call);

/* Where a row lies before augmentation: one of both. [channels, height, width] */
typedef struct yoke_stored_row {
    const uint8_t *bytes;
    const float *floats;
} yoke_stored_row;
/* Where row `row` lies, among rows of files, labels and targets; its augmentation depends on that
 * number. */
size_t yoke_dataset_stored(const yoke_dataset *dataset, size_t row);
/* The dataset's rows lie in memory; `stored` comes from yoke_dataset_stored. */
yoke_stored_row yoke_dataset_row(const yoke_dataset *dataset, size_t stored);
/* channels x height x width. */
size_t yoke_dataset_values(const yoke_dataset *dataset);
/* Labels of a row, at least 1. */
size_t yoke_dataset_labels(const yoke_dataset *dataset);
/* Where a row or a batch goes that the host program makes; NULL: it has no labels, or no targets.
 */
typedef struct yoke_row_places {
    float *inputs;
    int32_t *labels;
    float *targets;
    float *const *more_inputs; /* [yoke_dataset.more_count], each at this row */
} yoke_row_places;
/* ARGUMENT: rows of no or of too many values, or more of them than can be addressed. */
yoke_status yoke_dataset_check_shape(const yoke_dataset *dataset);
/* host_rows.c: calls the source's `read`, or its `read_batch`, and checks the labels. */
yoke_status yoke_host_row_read(const yoke_dataset *dataset, size_t row,
                               const yoke_row_places *places);
yoke_status yoke_host_batch_read(const yoke_dataset *dataset, const int64_t *rows, int count,
                                 const yoke_row_places *places);
/* labels: those of row `row`; NULL: it has none. ARGUMENT: a label is neither a class nor
 * YOKE_NO_LABEL. */
yoke_status yoke_host_labels_check(const yoke_dataset *dataset, size_t row, const int32_t *labels);
/* Checks rows that come from the host program: valid sizes, and either classes or targets. */
yoke_status yoke_host_rows_check(const yoke_dataset *dataset);
/* row_stream.c: whether rows come in a stream, and it has several passes. */
bool yoke_dataset_rewinds(const yoke_dataset *dataset);
/* A number that depends on the labels or targets of the whole batch that the loader of a row stream
 * lent last, in DDP; 0: none, or the epoch is over. */
uint64_t yoke_loader_digest(const yoke_loader *loader);
/* From now on `stop`, a flag that outlives the loader, ends the decoders of its threads: the batch
 * that is not complete is CANCELLED. Before the first epoch. */
void yoke_loader_stop_on(yoke_loader *loader, const atomic_bool *stop);
/* One mean and std for all channels. */
void yoke_dataset_set_statistics(yoke_dataset *dataset, float mean, float std);
/* Mean and std of each channel of bytes; floats are used as they are. The table has four
 * channels: with more of them all use mean 0.5 and std 0.25. */
void yoke_dataset_measure(yoke_dataset *dataset);

/* selection.c: which of the stored rows a dataset has. keep: drops the rows whose entry of
 * keep[rows] is false. draw: which of `count` rows are the test split, `part` of them, but
 * at least one and not all; the same in every run. split: keeps the rows of a split, `part` of each
 * class being the test split. */
yoke_status yoke_dataset_keep(yoke_dataset *dataset, const bool *keep);
yoke_status yoke_split_draw(bool *test, size_t count, double part);
yoke_status yoke_dataset_split(yoke_dataset *dataset, double part, yoke_split split);
#define YOKE_VALIDATION 0.1 /* of rows whose files do not divide them */
/* The rows of `split`, after `measure` has seen those of training; validation 0: YOKE_VALIDATION.
 * DATA: there are none; the text begins with `file`. */
yoke_status yoke_dataset_take_drawn(yoke_dataset *dataset, double validation, yoke_split split,
                                    yoke_status (*measure)(yoke_dataset *dataset),
                                    const char *file);

/* Each fills a zeroed dataset from DIR. After a failure `owned` holds what was allocated. */
yoke_status yoke_cifar_open(yoke_dataset *dataset, const char *directory, yoke_split split,
                            int classes);
yoke_status yoke_mnist_open(yoke_dataset *dataset, const char *directory, yoke_split split);
/* options: the text after "synthetic:"; may be empty. */
yoke_status yoke_synthetic_open(yoke_dataset *dataset, const char *options, yoke_split split);

/* text: what follows "npy:", "npz:", "csv:" and "pairs:". */
yoke_status yoke_npy_open(yoke_dataset *dataset, const char *text, yoke_split split);
yoke_status yoke_npz_open(yoke_dataset *dataset, const char *text, yoke_split split);
yoke_status yoke_csv_open(yoke_dataset *dataset, const char *text, yoke_split split);
yoke_status yoke_pairs_open(yoke_dataset *dataset, const char *text, yoke_split split);
/* Classes of a file whose labels say how many there are. */
#define YOKE_CLASSES_LIMIT 100000

/* text: what follows "images:". */
yoke_status yoke_images_open(yoke_dataset *dataset, const char *text, yoke_split split);
void yoke_images_close(yoke_image_folder *folder); /* takes NULL */

/* Reads the names of the classes, one a line, from DIRECTORY/name. A file that is missing or has
 * not exactly one for each class gives none. */
yoke_status yoke_class_names_read(yoke_dataset *dataset, const char *directory, const char *name);

/* "DIRECTORY/name" in a buffer of YOKE_DATA_PATH_BYTES; ARGUMENT when it does not fit. */
#define YOKE_DATA_PATH_BYTES 4096
yoke_status yoke_data_path(char *path, const char *directory, const char *name);

/* Draws row `row` of a split of the synthetic set: a figure of class `label` on [channels, height,
 * width] bytes. The same arguments always give the same image. */
typedef struct yoke_drawing {
    yoke_shape shape;
    yoke_split split;
    size_t row;
    int label;
} yoke_drawing;
#define YOKE_DRAWING_CLASSES 100
void yoke_draw_row(const yoke_drawing *drawing, uint8_t *pixels);

/* torch.randperm(n) for a CPU generator seeded with `seed` (MT19937), exact. */
void yoke_randperm(int64_t *order, size_t count, uint64_t seed);
/* torch.utils.data.WeightedRandomSampler with replacement, the same indices. weights: sums[i] is
 * the share of rows 0 .. i in the sum of all weights, a row's weight being 1 / the rows of its
 * class. ARGUMENT: the dataset has no labels in memory. */
yoke_status yoke_balanced_weights(const yoke_dataset *dataset, double *sums);
void yoke_balanced_order(int64_t *order, const double *sums, size_t count, uint64_t seed);

/* Writes one augmented, normalised row: [channels, height, width]. The random numbers depend only
 * on (seed, epoch, row of the dataset), not on threads or devices. Order and arithmetic are
 * torchvision's: RandomCrop, RandomHorizontalFlip, ToTensor, Normalize, then cutout or
 * RandomErasing. */
typedef struct yoke_augmentation {
    yoke_augment kind;
    yoke_color_jitter color_jitter; /* of the stored pixels: yoke_color_jitter_row */
    double erasing;
    double mixup; /* alpha; 0: off */
    yoke_crop_flip crop_flip;
    bool raw;
    uint64_t seed, epoch;
} yoke_augmentation;
#define YOKE_CROP_PADDING 4 /* unless crop_flip says otherwise */
/* augment_check.c. ARGUMENT: rows or numbers that augmentation is not for. */
yoke_status yoke_augment_check(const yoke_dataset *dataset, const yoke_loader_options *options);
void yoke_augment_row(const yoke_dataset *dataset, size_t row, const yoke_stored_row *stored,
                      const yoke_augmentation *augmentation, float *output);
/* Flags that end a decoder within a line; each may be NULL. */
typedef struct yoke_stops {
    const atomic_bool *one, *other;
} yoke_stops;
/* How a row's file is read. */
typedef struct yoke_image_request {
    const yoke_augmentation *augmentation;
    yoke_crop *crop; /* NULL: none */
    yoke_stops stops;
} yoke_image_request;
/* Decodes a row's file: [3, size, size]; or, with a crop, what yoke_image_cut makes. Any thread.
 * DATA: the file is no image, or damaged. CANCELLED: a flag says so. */
yoke_status yoke_images_read(const yoke_image_folder *folder, size_t row,
                             const yoke_image_request *request, uint8_t *pixels);
/* Whether GPUs crop and scale the dataset's rows; NULL: no. */
bool yoke_dataset_has_crops(const yoke_dataset *dataset);
/* Decodes the whole file, a JPEG at an eighth of its size. */
yoke_status yoke_images_check(const yoke_image_folder *folder, size_t row);
/* Where two sides of a box come from: a share of an image's area, uniform between smallest and
 * largest, and a ratio whose logarithm is uniform; *with grows with it. */
typedef struct yoke_sides {
    double smallest, largest, least_ratio, most_ratio;
} yoke_sides;
void yoke_draw_sides(const uint32_t words[2], double area, const yoke_sides *range, int *with,
                     int *against);

/* Changes the colours of stored pixels, [3, pixels], by the factor of a property; hue: a turn of -1
 * to 1. jitter_row draws order and factors of a row, and does nothing where nothing is to
 * change. */
typedef enum yoke_color_property {
    YOKE_COLOR_BRIGHTNESS,
    YOKE_COLOR_CONTRAST,
    YOKE_COLOR_SATURATION,
    YOKE_COLOR_HUE
} yoke_color_property;
void yoke_color_adjust(uint8_t *image, size_t pixels, yoke_color_property property, double factor);
bool yoke_color_jitter_on(const yoke_color_jitter *jitter);
void yoke_color_jitter_row(uint8_t *image, size_t pixels, const yoke_augmentation *augmentation,
                           size_t row);

/* mixup.c: torchvision's MixUp. share: what a row keeps of itself, from Beta(alpha, alpha); beta:
 * the same of two random words. values: row[count] becomes share * row + (1 - share) * partner, in
 * float32. */
float yoke_mixup_beta(const uint32_t words[2], double alpha);
float yoke_mixup_share(const yoke_augmentation *augmentation, size_t row);
void yoke_mixup_values(float *row, const float *partner, size_t count, float share);

/* The two halves of that for rows that a GPU decodes: the placement of one row's image, and the
 * values that all rows share. */
yoke_placement yoke_augment_place(const yoke_augmentation *augmentation, const yoke_shape *shape,
                                  size_t row);
yoke_decoding yoke_augment_decoding(const yoke_dataset *dataset,
                                    const yoke_augmentation *augmentation);

#endif
