/* The door of data: files become batches. */
#ifndef DATA_DATA_H
#define DATA_DATA_H

#include "base/base.h"
#include "yoke/dataset.h"

/* One row as stored: bytes (0..255) or floats, borrowed or written into `scratch` (floats). */
struct yoke_dataset {
    char name[32];
    size_t rows;
    yoke_shape shape;
    int classes, target_count;
    float mean[4], deviation[4];
    const uint8_t *bytes; /* [rows, shape], or NULL */
    const float *floats;  /* [rows, shape], or NULL */
    const int32_t *labels;
    const float *targets;
    yoke_row_source source; /* source.read != NULL: made on demand */
    void *owned[2];         /* freed on close: pixels, labels */
};

/* One format a file; each opens DIR. */
yoke_status yoke_cifar_open(yoke_dataset *dataset, const char *directory, yoke_split split,
                            int classes);
yoke_status yoke_mnist_open(yoke_dataset *dataset, const char *directory, yoke_split split);
/* options: the text after "synthetic:", may be empty. */
yoke_status yoke_synthetic_open(yoke_dataset *dataset, const char *options, yoke_split split);

/* torch.randperm(n) for a CPU generator seeded with `seed` (MT19937), exact. */
void yoke_randperm(int64_t *order, size_t count, uint64_t seed);

/* Writes one augmented, normalised row: [channels, height, width]. Randomness is keyed by (seed,
 * epoch, row of the dataset): it does not depend on threads or devices. */
typedef struct yoke_augmentation {
    yoke_augment kind;
    bool raw;
    uint64_t seed, epoch;
} yoke_augmentation;
yoke_status yoke_augment_row(const yoke_dataset *dataset, size_t row,
                             const yoke_augmentation *augmentation, float *output,
                             float *scratch);

#endif
