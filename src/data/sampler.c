/* SPDX-License-Identifier: Apache-2.0 */
/* torch.utils.data.DistributedSampler and torch.randperm, index for index. */
#include "data/data.h"

#include <stdlib.h>

#define MT_WORDS 624
#define MT_SHIFT 397

/* MT19937 (Matsumoto and Nishimura 1998), the engine behind torch's CPU generator. */
typedef struct mersenne {
    uint32_t state[MT_WORDS];
    int next;
} mersenne;

static void mersenne_seed(mersenne *engine, uint32_t seed) {
    engine->state[0] = seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t last = engine->state[i - 1];
        engine->state[i] = 1812433253u * (last ^ (last >> 30)) + i;
    }
    engine->next = MT_WORDS;
}

static uint32_t mersenne_next(mersenne *engine) {
    if (engine->next == MT_WORDS) {
        uint32_t *state = engine->state;
        for (int i = 0; i < MT_WORDS; i++) {
            uint32_t joined = (state[i] & 0x80000000u) | (state[(i + 1) % MT_WORDS] & 0x7fffffffu);
            uint32_t twist = (joined & 1) ? 0x9908b0dfu : 0;
            state[i] = state[(i + MT_SHIFT) % MT_WORDS] ^ (joined >> 1) ^ twist;
        }
        engine->next = 0;
    }
    uint32_t word = engine->state[engine->next++];
    word ^= word >> 11;
    word ^= (word << 7) & 0x9d2c5680u;
    word ^= (word << 15) & 0xefc60000u;
    return word ^ (word >> 18);
}

/* Long lists draw 64 bits, high word first, to reduce modulo bias; the threshold is torch's. */
static uint64_t draw(mersenne *engine, bool wide) {
    uint64_t word = mersenne_next(engine);
    return wide ? word << 32 | mersenne_next(engine) : word;
}

void yoke_randperm(int64_t *order, size_t count, uint64_t seed) {
    mersenne engine;
    mersenne_seed(&engine, (uint32_t)seed);
    bool wide = count >= UINT32_MAX / 20;
    for (size_t i = 0; i < count; i++)
        order[i] = (int64_t)i;
    for (size_t i = 0; i + 1 < count; i++) {
        size_t other = i + (size_t)(draw(&engine, wide) % (count - i));
        int64_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
}

static yoke_status load(yoke_sampler *own, const yoke_sampler *given) {
    if (!given) return FAIL(YOKE_ERROR_ARGUMENT, "the sampler is NULL");
    TRY(yoke_options_load(own, sizeof *own, given, "yoke_sampler"));
    if (own->world < 1)
        return FAIL(YOKE_ERROR_ARGUMENT, "a sampler for a world of %d: it must be at least 1",
                    own->world);
    if (own->rank < 0 || own->rank >= own->world)
        return FAIL(YOKE_ERROR_ARGUMENT, "sampler rank %d: expected 0..%d", own->rank,
                    own->world - 1);
    return YOKE_OK;
}

/* rows / world, rounded down with drop_last, otherwise up. */
static size_t count_of(const yoke_sampler *sampler) {
    size_t world = (size_t)sampler->world, whole = sampler->rows / world;
    return whole + (!sampler->drop_last && sampler->rows % world != 0);
}

size_t yoke_sampler_count(const yoke_sampler *given) {
    yoke_sampler sampler;
    return load(&sampler, given) == YOKE_OK ? count_of(&sampler) : 0;
}

/* Position i of a rank is entry i * world + rank of the list, which repeats when padded. */
static void stride(const yoke_sampler *sampler, const int64_t *list, int64_t *order) {
    size_t count = count_of(sampler), world = (size_t)sampler->world;
    for (size_t i = 0; i < count; i++) {
        size_t entry = (i * world + (size_t)sampler->rank) % sampler->rows;
        order[i] = list ? list[entry] : (int64_t)entry;
    }
}

yoke_status yoke_sampler_indices(const yoke_sampler *given, int64_t *order) {
    yoke_sampler sampler;
    TRY(load(&sampler, given));
    if (count_of(&sampler) == 0) return YOKE_OK;
    if (!order)
        return FAIL(YOKE_ERROR_ARGUMENT, "the list for %zu indices is NULL", count_of(&sampler));
    if (!sampler.shuffle) {
        stride(&sampler, NULL, order);
        return YOKE_OK;
    }
    if (sampler.world == 1) { /* the list itself: nothing to allocate */
        yoke_randperm(order, sampler.rows, sampler.seed + sampler.epoch);
        return YOKE_OK;
    }
    if (sampler.rows > SIZE_MAX / sizeof *order)
        return FAIL(YOKE_ERROR_ARGUMENT, "a sampler over %zu rows", sampler.rows);
    int64_t *list = yoke_malloc(sampler.rows * sizeof *list);
    if (!list) return FAIL_MEMORY(sampler.rows * sizeof *list, "a permutation");
    yoke_randperm(list, sampler.rows, sampler.seed + sampler.epoch);
    stride(&sampler, list, order);
    yoke_free(list);
    return YOKE_OK;
}

/* The class of a row now: the labels are the host program's, and it may have changed them. */
static yoke_status class_of(const yoke_dataset *dataset, size_t row, size_t *class) {
    int64_t label = dataset->labels[yoke_dataset_stored(dataset, row)];
    *class = (size_t)label;
    if (label >= 0 && label < dataset->classes) return YOKE_OK;
    return FAIL(YOKE_ERROR_ARGUMENT,
                "dataset '%s': row %zu has label %lld now, and there are %d classes: labels may "
                "not change to another class than 0 to %d",
                dataset->name, row, (long long)label, dataset->classes, dataset->classes - 1);
}

/* First sums[row] is the row's class, then its weight: 1 / rows of the class. */
static yoke_status add_classes(const yoke_dataset *dataset, size_t *counts, double *weights) {
    size_t class;
    for (size_t row = 0; row < dataset->rows; row++) {
        TRY(class_of(dataset, row, &class));
        weights[row] = (double)class; /* read once: another thread may write labels */
        counts[class]++;
    }
    for (size_t row = 0; row < dataset->rows; row++)
        weights[row] = 1.0 / (double)counts[(size_t)weights[row]];
    return YOKE_OK;
}

yoke_status yoke_balanced_weights(const yoke_dataset *dataset, double *sums) {
    double sum = 0;
    bool several = yoke_dataset_labels(dataset) > 1;
    if (several || dataset->labels == NULL)
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "balanced sampling needs one class of each row, known in advance; dataset '%s' "
                    "has %s",
                    dataset->name,
                    several                ? "several"
                    : dataset->classes > 0 ? "a callback for them"
                                           : "targets");
    size_t *counts = yoke_calloc((size_t)dataset->classes, sizeof *counts);
    if (!counts) return FAIL_MEMORY((size_t)dataset->classes * sizeof *counts, "class counts");
    yoke_status status = add_classes(dataset, counts, sums);
    yoke_free(counts);
    if (status != YOKE_OK) return status;
    for (size_t row = 0; row < dataset->rows; row++) {
        sum += sums[row];
        sums[row] = sum;
    }
    for (size_t row = 0; row < dataset->rows; row++)
        sums[row] /= sum;
    sums[dataset->rows - 1] = 1;
    return YOKE_OK;
}

/* torch.multinomial: 53 random bits a draw, and the first row whose sum is not below them. */
void yoke_balanced_order(int64_t *order, const double *sums, size_t count, uint64_t seed) {
    mersenne engine;
    mersenne_seed(&engine, (uint32_t)seed);
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = draw(&engine, true) & ((UINT64_C(1) << 53) - 1);
        double sample = (double)bits * 0x1p-53;
        size_t low = 0, high = count;
        while (low < high) {
            size_t middle = low + (high - low) / 2;
            if (sums[middle] < sample)
                low = middle + 1;
            else
                high = middle;
        }
        order[i] = (int64_t)low;
    }
}
