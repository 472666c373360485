/* SPDX-License-Identifier: Apache-2.0 */
/* torchvision's MixUp: a row's share of itself, and the sum of two rows. */
#include <math.h>
#include <string.h>

#include "data/loader_slot.h"

/* Beta(alpha, alpha) from two uniform numbers (Ulrich 1984, for all alpha Devroye 1986, IX.3.3): if
 * T has Student's distribution with 2 alpha degrees of freedom, 1/2 + T / (2 sqrt(2 alpha + T^2))
 * has this one, and Bailey's polar method gives T^2 / (2 alpha) = (U^(-1/alpha) - 1) cos^2(2 pi V).
 * The sign of T is that of the cosine. */
float yoke_mixup_beta(const uint32_t words[2], double alpha) {
    const double two_pi = 6.283185307179586476925;
    double u = ((double)words[0] + 1) * 0x1p-32; /* never 0; 1 gives a share of 1/2 */
    double cosine = cos(two_pi * ((double)words[1] * 0x1p-32));
    double square =
        expm1(fabs(log(u)) / alpha) * cosine * cosine; /* never -0: 1 / -0 has no root */
    return (float)(0.5 + copysign(0.5 / sqrt(1 + 1 / square), cosine));
}

float yoke_mixup_share(const yoke_augmentation *augmentation, size_t row) {
    uint32_t words[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_MIXUP, augmentation->epoch, (uint32_t)row, 0,
                      words);
    return yoke_mixup_beta(words, augmentation->mixup);
}

/* Rounds as torchvision does: the partner first, both products to float32, then their sum. */
void yoke_mixup_values(float *row, const float *partner, size_t count, float share) {
    float rest = 1 - share;
    for (size_t i = 0; i < count; i++) {
        float other = partner[i] * rest, own = row[i] * share;
        row[i] = other + own;
    }
}

/* The row before the first one goes behind the last; a slot that has the whole batch holds it. */
static yoke_status add_partner(yoke_loader_slot *slot, const yoke_slot_kind *kind,
                               const int64_t *order, const yoke_row_buffer *buffer) {
    const yoke_dataset *dataset = kind->dataset;
    size_t to = (size_t)slot->part.rows, values = yoke_dataset_values(dataset);
    size_t targets = (size_t)dataset->target_count;
    int before = (slot->part.first + slot->whole_rows - 1) % slot->whole_rows;
    if (slot->part.rows < slot->whole_rows)
        return yoke_slot_fill(slot, slot->part.rows, kind,
                              yoke_dataset_stored(dataset, (size_t)order[before]), buffer);
    memcpy(slot->inputs + to * values, slot->inputs + (to - 1) * values, values * sizeof(float));
    if (slot->labels)
        slot->labels[to] = slot->labels[to - 1];
    else
        memcpy(slot->targets + to * targets, slot->targets + (to - 1) * targets,
               targets * sizeof(float));
    return YOKE_OK;
}

/* The last row comes first, so that each row finds its partner as it was read. */
yoke_status yoke_slot_mix(yoke_loader_slot *slot, const yoke_slot_kind *kind, const int64_t *order,
                          const yoke_row_buffer *buffer) {
    const yoke_dataset *dataset = kind->dataset;
    size_t values = yoke_dataset_values(dataset), targets = (size_t)dataset->target_count;
    int rows = slot->part.rows;
    if (rows == 0) return YOKE_OK;
    TRY(add_partner(slot, kind, order, buffer));
    for (int i = rows - 1; i >= 0; i--) {
        size_t row = (size_t)i, partner = (size_t)(i > 0 ? i - 1 : rows);
        int64_t next = order[slot->part.first + i];
        float share =
            yoke_mixup_share(kind->augmentation, yoke_dataset_stored(dataset, (size_t)next));
        yoke_mixup_values(slot->inputs + row * values, slot->inputs + partner * values, values,
                          share);
        if (slot->mixes)
            slot->mixes[i] = (yoke_label_mix){slot->labels[partner], share};
        else
            yoke_mixup_values(slot->targets + row * targets, slot->targets + partner * targets,
                              targets, share);
    }
    return YOKE_OK;
}
