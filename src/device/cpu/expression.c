/* SPDX-License-Identifier: Apache-2.0 */
/* Expressions of elementary functions, in one pass over memory: each thread takes a block of
 * elements that stays in the first-level cache, and runs one loop for each function of the
 * expression. Forward writes a function's values over those that it reads last. Backward computes
 * the block's values again, and walks the functions from the last to the first. The gradient of an
 * input that repeats is summed over a row in double, in the order of the elements, whatever the
 * threads. */
#include <math.h>
#include <omp.h>
#include <string.h>

#include "device/cpu/clones.h"
#include "device/cpu/functions.h"
#include "device/cpu/plain.h"

enum {
    BLOCK = 512,  /* elements */
    APART = 32,   /* blocks a power of two apart would share lines of the cache */
    CHUNK = 8192, /* elements of a row that one thread takes at a time */
    FIRST_TERM = YOKE_EXPRESSION_INPUTS,
    SLOTS = FIRST_TERM + YOKE_TERMS_LIMIT
};

typedef struct expression_plan {
    cpu_plain_plan plain;
    yoke_view view;
    bool linear;                  /* backward needs no values */
    int places[YOKE_TERMS_LIMIT]; /* forward: the slot whose memory a term's values take */
    /* Backward: whether a term is the first to contribute to the gradient of its argument. */
    bool first[YOKE_TERMS_LIMIT][YOKE_ARGUMENTS];
    bool whole[YOKE_PLAN_INPUTS]; /* the input repeats along no axis */
    size_t elements[YOKE_PLAN_INPUTS];
    size_t sums[YOKE_PLAN_INPUTS]; /* of an input that repeats: where its sums begin */
    size_t sum_count;
} expression_plan;

/* What one thread works with. */
typedef struct workplace {
    float memory[2][SLOTS][BLOCK + APART]; /* values, gradients */
    float *values[SLOTS], *gradients[SLOTS];
    double sums[]; /* [sum_count] */
} workplace;

static size_t workplace_bytes(const expression_plan *self) {
    return cpu_align(sizeof(workplace) + self->sum_count * sizeof(double), CPU_LINE);
}

#define REAL float
#define FN(name) cpu_##name

#define FORWARD(NAME, name, arguments, linear, value, da, db, dc)                                  \
    case YOKE_FN_##NAME:                                                                           \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) {                                   \
            float a = A[i], b = B[i], c = C[i];                                                    \
            (void)a, (void)b, (void)c, (void)p, (void)q;                                           \
            to[i] = (value);                                                                       \
        }                                                                                          \
        break;

CPU_CLONES static void run_term(const yoke_term *term, float *const *slots, float *to,
                                size_t count) {
    const float *A = slots[term->arguments[0]], *B = slots[term->arguments[1]];
    const float *C = slots[term->arguments[2]], p = term->p, q = term->q;
    switch ((yoke_function)term->function) {
        YOKE_ELEMENTARY(FORWARD)
    case YOKE_FUNCTIONS:
        break;
    }
}

#define SLOPE(k, result)                                                                           \
    _Pragma("omp simd") for (size_t i = 0; i < (arguments > k ? count : 0); i++) {                 \
        float a = A[i], b = B[i], c = C[i], y = Y[i], dy = DY[i],                                  \
              before = first[k] ? 0 : to[k][i];                                                    \
        (void)a, (void)b, (void)c, (void)p, (void)q, (void)y, (void)dy;                            \
        to[k][i] = before + (result);                                                              \
    }
#define BACKWARD(NAME, name, arity, linear, value, da, db, dc)                                     \
    case YOKE_FN_##NAME: {                                                                         \
        enum { arguments = arity };                                                                \
        SLOPE(0, da) SLOPE(1, db) SLOPE(2, dc) break;                                              \
    }

/* Adds to the gradients of the term's arguments, one of which may be its argument twice; the first
 * to do so writes them. */
CPU_CLONES static void run_slopes(const yoke_term *term, const workplace *place, int slot,
                                  const bool first[YOKE_ARGUMENTS], size_t count) {
    float *const *slots = place->values;
    const float *A = slots[term->arguments[0]], *B = slots[term->arguments[1]];
    const float *C = slots[term->arguments[2]], *Y = slots[slot], *DY = place->gradients[slot];
    const float p = term->p, q = term->q;
    float *to[YOKE_ARGUMENTS];
    for (int k = 0; k < YOKE_ARGUMENTS; k++)
        to[k] = place->gradients[term->arguments[k]];
    switch ((yoke_function)term->function) {
        YOKE_ELEMENTARY(BACKWARD)
    case YOKE_FUNCTIONS:
        break;
    }
}

/* A run: elements of a row that follow each other along the innermost axis. */
typedef struct run {
    size_t at, count, step; /* the operand's element, and to the next */
} run;

static inline run run_at(const yoke_view *view, int operand, size_t element, size_t left) {
    const size_t *steps = view->steps[operand], *lengths = view->lengths;
    size_t inner = element % lengths[2], outer = element / lengths[2];
    run found = {.at = outer / lengths[1] * steps[0] + outer % lengths[1] * steps[1] +
                       inner * steps[2],
                 .count = lengths[2] - inner,
                 .step = steps[2]};
    if (found.count > left) found.count = left;
    return found;
}

/* Elements first .. first + count - 1 of the expression's row, of operand k. */
static void load_block(const expression_plan *self, int k, const void *row, size_t first,
                       size_t count, float *to) {
    bool half = self->plain.half;
    for (size_t done = 0; done < count;) {
        run r = run_at(&self->view, k, first + done, count - done);
        if (r.step == 0) {
            float value = cpu_load(row, r.at, half);
            for (size_t i = 0; i < r.count; i++)
                to[done + i] = value;
        } else if (half) {
            for (size_t i = 0; i < r.count; i++)
                to[done + i] = cpu_load(row, r.at + i * r.step, true);
        } else {
            const float *from = (const float *)row + r.at;
            for (size_t i = 0; i < r.count; i++)
                to[done + i] = from[i * r.step];
        }
        done += r.count;
    }
}

static void add_to_sums(const expression_plan *self, int k, const float *from, size_t first,
                        size_t count, double *sums) {
    for (size_t done = 0; done < count;) {
        run r = run_at(&self->view, k, first + done, count - done);
        double sum = 0;
        for (size_t i = 0; i < r.count; i++)
            if (r.step == 0)
                sum += (double)from[done + i];
            else
                sums[r.at + i * r.step] += (double)from[done + i];
        if (r.step == 0) sums[r.at] += sum;
        done += r.count;
    }
}

static void store_block(void *row, bool half, size_t first, const float *from, size_t count) {
    if (!half) memcpy((float *)row + first, from, count * sizeof *from);
    for (size_t i = 0; half && i < count; i++)
        cpu_store(row, first + i, true, from[i]);
}

/* Sets values[k] of the inputs: where an input lies as the block needs it, it stays there. */
static void read_inputs(const expression_plan *self, workplace *place, size_t row, size_t first,
                        size_t count) {
    for (int k = 0; k < self->plain.input_count; k++) {
        const void *values =
            cpu_plain_row(&self->plain, self->plain.base.binding.inputs[k], row, self->elements[k]);
        place->values[k] = place->memory[0][k];
        if (self->whole[k] && !self->plain.half)
            place->values[k] = (float *)values + first;
        else
            load_block(self, k, values, first, count, place->values[k]);
    }
}

static void run_terms(const expression_plan *self, workplace *place, size_t count) {
    const yoke_expression *expression = &self->plain.base.operation.expression;
    for (int t = 0; t < expression->count; t++)
        run_term(&expression->terms[t], place->values, place->values[FIRST_TERM + t], count);
}

static void forward_block(const expression_plan *self, workplace *place, size_t row, size_t first,
                          size_t count) {
    const cpu_plain_plan *plain = &self->plain;
    const yoke_expression *expression = &plain->base.operation.expression;
    void *output = cpu_plain_row(plain, plain->base.binding.output, row, self->view.elements);
    int last = FIRST_TERM + expression->count - 1;
    read_inputs(self, place, row, first, count);
    for (int t = 0; t < expression->count; t++)
        place->values[FIRST_TERM + t] = place->memory[0][self->places[t]];
    if (!plain->half) place->values[last] = (float *)output + first;
    run_terms(self, place, count);
    if (plain->half) store_block(output, true, first, place->values[last], count);
}

static void backward_block(const expression_plan *self, workplace *place, size_t row, size_t first,
                           size_t count) {
    const cpu_plain_plan *plain = &self->plain;
    const yoke_expression *expression = &plain->base.operation.expression;
    const yoke_plan_binding *at = &plain->base.binding;
    int last = FIRST_TERM + expression->count - 1;
    for (int slot = 0; slot <= last; slot++) {
        place->values[slot] = place->memory[0][slot];
        place->gradients[slot] = place->memory[1][slot];
    }
    if (!self->linear) {
        read_inputs(self, place, row, first, count);
        run_terms(self, place, count);
    }
    const void *dy = cpu_plain_row(plain, at->output_gradient, row, self->view.elements);
    if (!plain->half) place->gradients[last] = (float *)dy + first; /* nobody writes it */
    for (size_t i = 0; plain->half && i < count; i++)
        place->gradients[last][i] = cpu_load(dy, first + i, true);
    for (int t = expression->count - 1; t >= 0; t--)
        run_slopes(&expression->terms[t], place, FIRST_TERM + t, self->first[t], count);
    for (int k = 0; k < plain->input_count; k++) {
        if (at->input_gradients[k] == NULL) continue;
        void *to = cpu_plain_row(plain, at->input_gradients[k], row, self->elements[k]);
        if (self->whole[k])
            store_block(to, plain->half, first, place->gradients[k], count);
        else
            add_to_sums(self, k, place->gradients[k], first, count, place->sums + self->sums[k]);
    }
}

/* The gradients that were summed over a whole row. */
static void store_sums(const expression_plan *self, const workplace *place, size_t row) {
    for (int k = 0; k < self->plain.input_count; k++) {
        void *gradient = self->plain.base.binding.input_gradients[k];
        if (gradient == NULL || self->whole[k]) continue;
        void *to = cpu_plain_row(&self->plain, gradient, row, self->elements[k]);
        for (size_t i = 0; i < self->elements[k]; i++)
            cpu_store(to, i, self->plain.half, (float)place->sums[self->sums[k] + i]);
    }
}

static workplace *workplace_of_thread(const expression_plan *self) {
    char *scratch = self->plain.base.binding.scratch;
    return (workplace *)(scratch + (size_t)omp_get_thread_num() * workplace_bytes(self));
}

static void expression_forward(const cpu_plain_plan *plain) {
    const expression_plan *self = (const expression_plan *)plain;
    size_t elements = self->view.elements, chunks = (elements + CHUNK - 1) / CHUNK;
    int threads = plain->base.device->threads;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, plain->base.rows * elements))
    for (size_t unit = 0; unit < plain->base.rows * chunks; unit++) {
        size_t begin = unit % chunks * CHUNK,
               end = begin + CHUNK < elements ? begin + CHUNK : elements;
        for (size_t first = begin; first < end; first += BLOCK)
            forward_block(self, workplace_of_thread(self), unit / chunks, first,
                          end - first < BLOCK ? end - first : BLOCK);
    }
}

/* A row with sums is one thread's. */
static void expression_backward(const cpu_plain_plan *plain) {
    const expression_plan *self = (const expression_plan *)plain;
    size_t elements = self->view.elements, chunk = self->sum_count > 0 ? elements : CHUNK;
    size_t chunks = (elements + chunk - 1) / chunk;
    int threads = plain->base.device->threads;
#pragma omp parallel for num_threads(                                                              \
    threads) if (cpu_is_parallel(threads, plain->base.rows * elements))
    for (size_t unit = 0; unit < plain->base.rows * chunks; unit++) {
        workplace *place = workplace_of_thread(self);
        size_t begin = unit % chunks * chunk,
               end = begin + chunk < elements ? begin + chunk : elements;
        memset(place->sums, 0, self->sum_count * sizeof *place->sums);
        for (size_t first = begin; first < end; first += BLOCK)
            backward_block(self, place, unit / chunks, first,
                           end - first < BLOCK ? end - first : BLOCK);
        store_sums(self, place, unit / chunks);
    }
}

#define LINEAR(NAME, name, arguments, linear, value, da, db, dc) linear,
#define ARGUMENTS(NAME, name, arguments, linear, value, da, db, dc) arguments,
static const bool linear[] = {YOKE_ELEMENTARY(LINEAR)};
static const int arguments_of[] = {YOKE_ELEMENTARY(ARGUMENTS)};

static bool is_linear(const yoke_expression *expression) {
    bool all = true;
    for (int t = 0; t < expression->count; t++)
        all = all && linear[expression->terms[t].function];
    return all;
}

/* Backward goes from the last term to the first, and from the first argument to the last. */
static void find_first(expression_plan *self, const yoke_expression *expression) {
    bool seen[SLOTS] = {false};
    for (int t = expression->count - 1; t >= 0; t--)
        for (int a = 0; a < arguments_of[expression->terms[t].function]; a++) {
            int slot = expression->terms[t].arguments[a];
            self->first[t][a] = !seen[slot];
            seen[slot] = true;
        }
}

/* The last term that reads a slot; -1: none does. */
static int last_reader(const yoke_expression *expression, int slot) {
    int reader = -1;
    for (int t = 0; t < expression->count; t++)
        for (int a = 0; a < YOKE_ARGUMENTS; a++)
            if (expression->terms[t].arguments[a] == slot) reader = t;
    return reader;
}

/* A term takes the memory of an argument that nobody reads behind it, or its own. Inputs keep
 * theirs: it may be the value itself. */
static void choose_places(expression_plan *self, const yoke_expression *expression) {
    for (int t = 0; t < expression->count; t++) {
        self->places[t] = FIRST_TERM + t;
        for (int a = 0; a < YOKE_ARGUMENTS; a++) {
            int slot = expression->terms[t].arguments[a];
            if (slot >= FIRST_TERM && last_reader(expression, slot) == t)
                self->places[t] = self->places[slot - FIRST_TERM];
        }
    }
}

static yoke_status expression_prepare(cpu_plain_plan *plain, const yoke_plan_request *request) {
    expression_plan *self = (expression_plan *)plain;
    const yoke_operation *operation = request->operation;
    yoke_plan_needs *needs = &plain->base.needs;
    yoke_dims inputs[YOKE_PLAN_INPUTS];
    self->linear = is_linear(&operation->expression);
    choose_places(self, &operation->expression);
    find_first(self, &operation->expression);
    for (int k = 0; k < plain->input_count; k++) {
        inputs[k] = yoke_operation_input(operation, k);
        self->elements[k] = yoke_row_elements(inputs[k]);
        self->whole[k] = self->elements[k] == yoke_row_elements(operation->output);
        self->sums[k] = self->sum_count;
        if (!self->whole[k]) self->sum_count += self->elements[k];
        needs->backward_reads[k] = needs->backward_reads[k] && !self->linear;
    }
    self->view = yoke_view_of(operation->output, inputs, plain->input_count, false);
    needs->forward_in_place = needs->forward_in_place && self->whole[0];
    needs->backward_in_place = needs->backward_in_place && self->whole[0];
    needs->scratch_bytes += (size_t)plain->base.device->threads * workplace_bytes(self);
    return YOKE_OK;
}

yoke_status cpu_plan_expression(yoke_plan **plan, cpu_device *device,
                                const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {YOKE_IN_PLACE | YOKE_READS_INPUTS,
                                              sizeof(expression_plan),
                                              true,
                                              expression_prepare,
                                              expression_forward,
                                              expression_backward};
    return cpu_plain_plan_create(plan, device, request, &calls,
                                 request->operation->expression.inputs);
}
