/* Rows to train on: files in well-known formats, drawn images, arrays or callbacks of the host
 * program. A dataset is read-only after opening and may be shared by threads. */
#ifndef YOKE_DATASET_H
#define YOKE_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/decoding.h"
#include "yoke/device.h"
#include "yoke/model.h"
#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_dataset yoke_dataset;

typedef enum yoke_split { YOKE_SPLIT_TRAIN, YOKE_SPLIT_TEST } yoke_split;

/* Opens a dataset by SPEC:
 *   cifar10:DIR     data_batch_1..5.bin / test_batch.bin (3073-byte records)
 *   cifar100:DIR    train.bin / test.bin (3074-byte records, fine labels)
 *   mnist:DIR       {train,t10k}-{images-idx3,labels-idx1}-ubyte, also .gz
 *   synthetic[:CxHxW[,classes=N][,rows=N]]   drawn shapes and textures; default
 *                   3x32x32,classes=10,rows=5000 (test split: rows / 5). No two splits share a row.
 * Some of the files missing: MISSING, naming them; a bad size or label: DATA, naming file and byte
 * offset. CIFAR training reads the data_batch files present, in order, at least the first. */
YOKE_API yoke_status yoke_dataset_open(yoke_dataset **dataset, const char *spec, yoke_split split);

/* Rows of the host program. pixels: uint8 or float [rows, channels, height, width], row-major;
 * exactly one of them set. labels [rows] for classes > 0; targets [rows, target_count] for
 * regression (classes = 0). Borrowed: they must outlive the dataset. */
typedef struct yoke_arrays {
    size_t struct_size;
    size_t rows;
    yoke_shape shape;
    const uint8_t *bytes;
    const float *floats;
    int classes;
    const int32_t *labels;
    const float *targets;
    int target_count;
} yoke_arrays;
YOKE_API yoke_status yoke_dataset_from_arrays(yoke_dataset **dataset, const yoke_arrays *arrays);

/* Rows made on demand. read fills one row: floats [channels, height, width] and its label or
 * targets; it is called from loader threads, possibly several at once; a status other than
 * YOKE_OK ends the run with it. */
typedef struct yoke_row_source {
    size_t struct_size;
    size_t rows;
    yoke_shape shape;
    int classes;
    int target_count;
    yoke_status (*read)(void *payload, size_t row, float *input, int32_t *label, float *targets);
    void *payload;
} yoke_row_source;
YOKE_API yoke_status yoke_dataset_from_callback(yoke_dataset **dataset,
                                                const yoke_row_source *source);

YOKE_API void yoke_dataset_close(yoke_dataset *dataset);

typedef struct yoke_dataset_info {
    size_t struct_size;
    const char *name; /* "cifar10", "synthetic", ...; borrowed */
    size_t rows;
    yoke_shape shape;
    int classes;      /* 0: regression */
    int target_count; /* regression targets per row */
    /* Per channel, of values in 0..1, for normalisation: published ones for known sets, measured
     * for bytes of the host program, 0 and 1 for its floats. Channels past the fourth use the
     * fourth's. */
    float mean[4];
    float deviation[4];
} yoke_dataset_info;
YOKE_API yoke_status yoke_dataset_describe(const yoke_dataset *dataset, yoke_dataset_info *info);

/* A batch in host memory: what scatter cuts. */
typedef struct yoke_batch {
    size_t struct_size;
    int rows;
    const float *inputs;   /* [rows, channels, height, width] */
    const int32_t *labels; /* [rows]; NULL for regression */
    const float *targets;  /* [rows, target_count]; NULL for classification */
    /* Of a rank's part: where it begins in the batch of all ranks, and the rows of that. 0, 0: the
     * batch is whole, or nobody has counted. */
    int first_row, whole_rows;
    /* Instead of inputs, for GPUs: pictures as they are stored, which the devices decode. */
    const uint8_t *pixels;            /* [rows, channels, height, width] */
    const yoke_placement *placements; /* [rows]; NULL: all as they are */
    const yoke_decoding *decoding;
} yoke_batch;

/* Augmentation by name as the tool takes it; for images with labels only. Order and arithmetic are
 * torchvision's: what a crop shows beyond the edge is black. */
typedef enum yoke_augment {
    YOKE_AUGMENT_NONE,
    YOKE_AUGMENT_CROP_FLIP,       /* pad 4, random crop, horizontal flip */
    YOKE_AUGMENT_CROP_FLIP_CUTOUT /* and an 8x8 square set to the mean */
} yoke_augment;

typedef struct yoke_loader_options {
    size_t struct_size;
    int batch;      /* rows of a batch; the last of an epoch may be short */
    bool shuffle;   /* torch.randperm with seed + epoch, as DistributedSampler */
    bool drop_last; /* leave a short last batch out */
    yoke_augment augment;
    bool raw; /* do not normalise (pixels stay in 0..1) */
    uint64_t seed;
    int slots;   /* batches prepared ahead; 0: 3 */
    int threads; /* loader threads; 0: 1 */
    /* Where the batches will go: they then lie in memory that GPUs copy from while the host goes
     * on, and rows stored as bytes come as pixels, for GPUs to decode. Must outlive the loader.
     * NULL: ordinary memory, and inputs. */
    yoke_devices *devices;
    /* Each batch is cut for `ranks` by torch.chunk's rule, and this rank gets its part: the batches
     * of an epoch are as many on every rank, and one with few rows may have none for the last
     * ranks. 0: the whole batch. */
    int rank, ranks;
} yoke_loader_options;

/* Batches prepared in the background while the caller computes on another. */
typedef struct yoke_loader yoke_loader;
YOKE_API yoke_status yoke_loader_create(yoke_loader **loader, const yoke_dataset *dataset,
                                        const yoke_loader_options *options);
YOKE_API void yoke_loader_destroy(yoke_loader *loader);
/* Begins an epoch: its order depends on (seed, epoch) alone. Ends a running one. */
YOKE_API yoke_status yoke_loader_begin(yoke_loader *loader, uint64_t epoch);
/* The next batch, borrowed until the following call; rows = 0 ends the epoch, unless whole_rows
 * says that other ranks have some. A row that failed makes the call that reaches its batch fail,
 * and every later one until the next epoch. waited_ns, if not NULL, gets the time the caller had to
 * wait: 0 means the loader was ahead. */
YOKE_API yoke_status yoke_loader_next(yoke_loader *loader, yoke_batch *batch, uint64_t *waited_ns);
YOKE_API size_t yoke_loader_batches(const yoke_loader *loader); /* per epoch */
YOKE_API bool yoke_loader_pixels(const yoke_loader *loader);    /* its batches come as pixels */

/* torch.utils.data.DistributedSampler's index list of one rank: `order` gets
 * yoke_sampler_count(...) indices. Exact, with torch.randperm's MT19937. */
typedef struct yoke_sampler {
    size_t struct_size;
    size_t rows;
    int replicas, rank;
    bool shuffle, drop_last;
    uint64_t seed, epoch;
} yoke_sampler;
YOKE_API size_t yoke_sampler_count(const yoke_sampler *sampler);
YOKE_API yoke_status yoke_sampler_indices(const yoke_sampler *sampler, int64_t *order);

#ifdef __cplusplus
}
#endif

#endif
