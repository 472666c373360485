/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic on flat float32 ranges, limited by memory bandwidth. Every loop is elementwise IEEE
 * without contraction, so that the bits depend neither on the instruction set nor on how a range is
 * cut. */
#include <math.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/cpu.h"
#include "device/cpu/rounded.h"

enum {
    LINE_ELEMENTS = 16,          /* a cache line of floats: two threads never write the same line */
    PARALLEL_ELEMENTS = 1 << 16, /* one thread finishes fewer before a second one wakes up */
    TREE_ELEMENTS = 1024,        /* partial sums stay in the first-level cache */
    SQUARE_BLOCK = 4096,         /* the block of yoke_device_square_sum's definition */
    SQUARE_BLOCKS = 256,         /* block sums in memory at a time */
    SQUARE_LANES = 16
};

/* Elements begin .. end - 1 of a job. */
typedef void (*range_body)(const void *job, size_t begin, size_t end);

static void run_range(const yoke_device *device, range_body body, const void *job,
                      size_t elements) {
    if (device->threads <= 1 || elements < PARALLEL_ELEMENTS) {
        body(job, 0, elements);
        return;
    }
    size_t lines = (elements + LINE_ELEMENTS - 1) / LINE_ELEMENTS;
    size_t threads = (size_t)device->threads;
#pragma omp parallel for num_threads(device->threads) schedule(static, 1)
    for (size_t thread = 0; thread < threads; thread++) {
        size_t begin = lines * thread / threads * LINE_ELEMENTS;
        size_t end = lines * (thread + 1) / threads * LINE_ELEMENTS;
        body(job, begin, end < elements ? end : elements);
    }
}

typedef struct sum_job {
    float *to;
    const float *const *from;
    const int *sizes; /* NULL: one contributor each */
    int count;
} sum_job;

/* `to` may equal `left`: each element depends only on itself. */
CPU_CLONES static void add_block(float *to, const float *left, const float *right, size_t count) {
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        to[i] = left[i] + right[i];
    }
}

typedef float tree_block[TREE_ELEMENTS];

typedef struct block_span {
    size_t at, elements;
} block_span;

/* to = elements `at` and on of a block, from 2 or more buffers. The left subtree's sum lies in
 * `to`, which may be in from[0], the right one's in work[0]. */
static void sum_tree(float *to, const float *const *from, const int *sizes, int count,
                     block_span block, tree_block *work) {
    int left = yoke_tree_split(sizes, count);
    const int *right = sizes != NULL ? sizes + left : NULL;
    const float *operands[] = {from[0] + block.at, from[left] + block.at};
    if (left > 1) {
        sum_tree(to, from, sizes, left, block, work);
        operands[0] = to;
    }
    if (count - left > 1) {
        sum_tree(work[0], from + left, right, count - left, block, work + 1);
        operands[1] = work[0];
    }
    add_block(to, operands[0], operands[1], block.elements);
}

static void sum_range(const void *job, size_t begin, size_t end) {
    const sum_job *sum = job;
    tree_block work[YOKE_TREE_LEVELS];
    for (block_span block = {.at = begin}; block.at < end; block.at += TREE_ELEMENTS) {
        size_t left = end - block.at;
        block.elements = left < TREE_ELEMENTS ? left : TREE_ELEMENTS;
        sum_tree(sum->to + block.at, sum->from, NULL, sum->count, block, work);
    }
}

static void copy_range(const void *job, size_t begin, size_t end) {
    const sum_job *sum = job;
    memcpy(sum->to + begin, sum->from[0] + begin, (end - begin) * sizeof *sum->to);
}

yoke_status cpu_sum(yoke_device *device, yoke_stream stream, float *to, const float *const *from,
                    int count, size_t elements) {
    (void)stream;
    sum_job job = {.to = to, .from = from, .count = count};
    run_range(device, count > 1 ? sum_range : copy_range, &job, elements);
    return YOKE_OK;
}

/* The square of a float is exact in double. Lane j of 16 adds elements j, j + 16, ... in order,
 * then lanes are folded in pairs: one order for every register width. */
CPU_CLONES static double square_block(const float *values, size_t count) {
    double lanes[SQUARE_LANES] = {0};
    size_t whole = count - count % SQUARE_LANES;
    for (size_t i = 0; i < whole; i += SQUARE_LANES) {
        for (size_t lane = 0; lane < SQUARE_LANES; lane++) {
            double value = (double)values[i + lane];
            lanes[lane] += value * value;
        }
    }
    for (size_t i = whole; i < count; i++) {
        lanes[i - whole] += (double)values[i] * (double)values[i];
    }
    for (size_t half = SQUARE_LANES / 2; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; lane++) {
            lanes[lane] += lanes[lane + half];
        }
    }
    return lanes[0];
}

static double square_block_at(const float *values, size_t elements, size_t block) {
    size_t at = block * SQUARE_BLOCK, left = elements - at;
    return square_block(values + at, left < SQUARE_BLOCK ? left : SQUARE_BLOCK);
}

/* One thread runs without OpenMP, which would allocate even a team of one. */
static void square_blocks(const yoke_device *device, const float *values, size_t elements,
                          size_t count, double *partial) {
    if (device->threads <= 1 || elements < PARALLEL_ELEMENTS) {
        for (size_t block = 0; block < count; block++) {
            partial[block] = square_block_at(values, elements, block);
        }
        return;
    }
#pragma omp parallel for num_threads(device->threads)
    for (size_t block = 0; block < count; block++) {
        partial[block] = square_block_at(values, elements, block);
    }
}

yoke_status cpu_square_sum(yoke_device *device, yoke_stream stream, const float *values,
                           size_t elements, double *sum) {
    (void)stream;
    double total = 0;
    for (size_t at = 0; at < elements; at += (size_t)SQUARE_BLOCKS * SQUARE_BLOCK) {
        double partial[SQUARE_BLOCKS];
        size_t left = elements - at, blocks = (left + SQUARE_BLOCK - 1) / SQUARE_BLOCK;
        size_t count = blocks < SQUARE_BLOCKS ? blocks : SQUARE_BLOCKS;
        square_blocks(device, values + at, left, count, partial);
        for (size_t block = 0; block < count; block++) {
            total += partial[block];
        }
    }
    *sum = total;
    return YOKE_OK;
}

typedef struct finite_job {
    const float *values;
    size_t offset;
    uint64_t *first_bad;
} finite_job;

/* All bits of the exponent are set in infinities and NaN, and in them alone. */
static bool is_bad(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & 0x7f800000u) == 0x7f800000u;
}

CPU_CLONES static bool is_any_bad(const float *values, size_t count) {
    uint32_t found = 0;
#pragma omp simd reduction(| : found)
    for (size_t i = 0; i < count; i++) {
        found |= is_bad(values[i]);
    }
    return found != 0;
}

static void check_range(const void *job, size_t begin, size_t end) {
    const finite_job *finite = job;
    if (!is_any_bad(finite->values + begin, end - begin)) return;
    while (!is_bad(finite->values[begin])) {
        begin++;
    }
    uint64_t bad = finite->offset + begin;
    uint64_t known = __atomic_load_n(finite->first_bad, __ATOMIC_RELAXED);
    while (bad < known && !__atomic_compare_exchange_n(finite->first_bad, &known, bad, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

yoke_status cpu_check_finite(yoke_device *device, yoke_stream stream, const float *values,
                             size_t elements, size_t offset, uint64_t *first_bad) {
    (void)stream;
    finite_job job = {.values = values, .offset = offset, .first_bad = first_bad};
    run_range(device, check_range, &job, elements);
    return YOKE_OK;
}

typedef struct update_job {
    yoke_float_scalars scalars;
    float gradient_scale;
    const float *weights, *gradients;
    float *to; /* the weights, or a direction */
    float *states[YOKE_UPDATE_STATES];
} update_job;

#define REAL float
#define FN(name) name##f
#define UPDATE_RANGE(NAME, name, count, formula)                                                   \
    CPU_CLONES static void update_##name(const void *job, size_t begin, size_t end) {              \
        const update_job update = *(const update_job *)job;                                        \
        const yoke_float_scalars k = update.scalars;                                               \
        _Pragma("omp simd") for (size_t i = begin; i < end; i++) {                                 \
            float w = update.weights[i], g = update.gradients[i] * update.gradient_scale;          \
            float m = count > 0 ? update.states[0][i] : 0,                                         \
                  v = count > 1 ? update.states[1][i] : 0;                                         \
            formula;                                                                               \
            update.to[i] = w;                                                                      \
            if (count > 0) update.states[0][i] = m;                                                \
            if (count > 1) update.states[1][i] = v;                                                \
        }                                                                                          \
    }
YOKE_UPDATES(UPDATE_RANGE)

#define UPDATE_BODY(NAME, name, count, formula) [YOKE_UPDATE_##NAME] = update_##name,
static const range_body update_bodies[YOKE_UPDATE_RULES] = {YOKE_UPDATES(UPDATE_BODY)};

yoke_status cpu_update(yoke_device *device, yoke_stream stream, const yoke_update_step *step,
                       float *weights, const float *gradients,
                       float *const states[YOKE_UPDATE_STATES], size_t elements) {
    (void)stream;
    update_job job = {.scalars = yoke_update_round(&step->scalars),
                      .gradient_scale = step->gradient_scale,
                      .weights = weights,
                      .gradients = gradients,
                      .to = step->direction != NULL ? step->direction : weights};
    memcpy(job.states, states, sizeof job.states);
    run_range(device, update_bodies[step->rule], &job, elements);
    return YOKE_OK;
}

/* A block comes together apart from `to`, which may be one of the subtrees. */
static void sum_subtrees(const void *job, size_t begin, size_t end) {
    const sum_job *sum = job;
    tree_block work[YOKE_TREE_LEVELS], together;
    for (block_span block = {.at = begin}; block.at < end; block.at += TREE_ELEMENTS) {
        size_t left = end - block.at;
        block.elements = left < TREE_ELEMENTS ? left : TREE_ELEMENTS;
        sum_tree(together, sum->from, sum->sizes, sum->count, block, work);
        memcpy(sum->to + block.at, together, block.elements * sizeof *sum->to);
    }
}

yoke_status cpu_sum_subtrees(yoke_device *device, yoke_stream stream, float *to,
                             const float *const *from, const int *sizes, int count,
                             size_t elements) {
    (void)stream;
    sum_job job = {.to = to, .from = from, .sizes = sizes, .count = count};
    run_range(device, count > 1 ? sum_subtrees : copy_range, &job, elements);
    return YOKE_OK;
}

typedef struct rescale_job {
    float *values;
    float factor;
} rescale_job;

CPU_CLONES static void rescale_range(const void *job, size_t begin, size_t end) {
    const rescale_job rescale = *(const rescale_job *)job;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        rescale.values[i] *= rescale.factor;
    }
}

yoke_status cpu_rescale(yoke_device *device, yoke_stream stream, float *values, size_t elements,
                        const double *numerator, const double *denominator, double epsilon) {
    (void)stream;
    double above = numerator != NULL ? *numerator : 1;
    if (above == 0 || *denominator == 0) return YOKE_OK;
    const rescale_job job = {values, (float)(sqrt(above) / fmax(sqrt(*denominator), epsilon))};
    run_range(device, rescale_range, &job, elements);
    return YOKE_OK;
}

typedef struct shadow_job {
    uint16_t *to;
    const float *from;
} shadow_job;

/* Sixteen at a time: of a plain loop GCC 12 narrows too early, and takes twice as long. */
typedef uint32_t shadow_words __attribute__((vector_size(64)));
typedef uint16_t shadow_halves __attribute__((vector_size(32)));
enum { SHADOW_LANES = 16 };

/* As yoke_bfloat16_round. */
CPU_CLONES static void shadow_range(const void *job, size_t begin, size_t end) {
    const shadow_job shadow = *(const shadow_job *)job;
    size_t i = begin;
    for (; end - i >= SHADOW_LANES; i += SHADOW_LANES) {
        shadow_words bits;
        memcpy(&bits, shadow.from + i, sizeof bits);
        shadow_words is_nan = (shadow_words)((bits & 0x7fffffffu) > 0x7f800000u);
        shadow_words up = (0x7fffu + ((bits >> 16) & 1u)) & ~is_nan;
        shadow_words rounded = ((bits + up) | (is_nan & 0x400000u)) >> 16;
        shadow_halves halves = __builtin_convertvector(rounded, shadow_halves);
        memcpy(shadow.to + i, &halves, sizeof halves);
    }
    for (; i < end; i++) {
        shadow.to[i] = yoke_bfloat16_round(shadow.from[i]);
    }
}

/* In bfloat16: no plan of another precision reads one. */
yoke_status cpu_shadow(yoke_device *device, yoke_precision precision, uint16_t *shadow,
                       const float *parameters, size_t elements) {
    (void)precision;
    shadow_job job = {.to = shadow, .from = parameters};
    run_range(device, shadow_range, &job, elements);
    return YOKE_OK;
}

typedef struct accumulate_job {
    void *to;
    const void *from;
} accumulate_job;

static void accumulate_float32(const void *job, size_t begin, size_t end) {
    const accumulate_job *accumulate = job;
    add_block((float *)accumulate->to + begin, (const float *)accumulate->to + begin,
              (const float *)accumulate->from + begin, end - begin);
}

CPU_CLONES static void accumulate_bfloat16(const void *job, size_t begin, size_t end) {
    uint16_t *to = ((const accumulate_job *)job)->to;
    const uint16_t *from = ((const accumulate_job *)job)->from;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        to[i] = yoke_bfloat16_round(yoke_bfloat16_widen(to[i]) + yoke_bfloat16_widen(from[i]));
    }
}

yoke_status cpu_accumulate(yoke_device *device, const yoke_layout *layout, void *to,
                           const void *from) {
    accumulate_job job = {.to = to, .from = from};
    bool wide = cpu_layout_desc(layout)->type == dnnl_f32;
    size_t elements = layout->bytes / (wide ? sizeof(float) : sizeof(uint16_t));
    run_range(device, wide ? accumulate_float32 : accumulate_bfloat16, &job, elements);
    if (cpu_is_float16(layout)) cpu_float16_round(device, to, elements);
    return YOKE_OK;
}
