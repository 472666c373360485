/* SPDX-License-Identifier: Apache-2.0 */
/* Update rules on ranges of flat buffers. The device does the arithmetic; this file holds the
 * state. */
#include "optimizer/optimizer.h"

#include <assert.h>
#include <stdlib.h>

#include "optimizer/whole.h"

struct yoke_optimizer {
    yoke_optimizer_options options;
    yoke_device *device;
    size_t offset, elements;
    yoke_optimizer_range whole; /* the settings of all elements, where the caller gives no ranges */
    const yoke_optimizer_range *ranges;
    int range_count;
    /* [elements]; NULL when unused. kept: the state before the latest update that keeps it; NULL:
     * no update keeps it */
    float *states[YOKE_UPDATE_STATES], *kept[YOKE_UPDATE_STATES];
};

float *yoke_optimizer_state(const yoke_optimizer *optimizer, int state) {
    return optimizer->states[state];
}

static yoke_status allocate(const yoke_optimizer *optimizer, float *states[YOKE_UPDATE_STATES]) {
    static const char *const purposes[YOKE_UPDATE_STATES] = {"the optimizer's first moments",
                                                             "the optimizer's second moments"};
    if (optimizer->elements == 0) return YOKE_OK;
    for (int i = 0; i < yoke_optimizer_state_count(&optimizer->options); i++) {
        void *state = NULL;
        TRY(yoke_device_allocate(optimizer->device, optimizer->elements * sizeof(float),
                                 purposes[i], &state));
        states[i] = state;
    }
    return YOKE_OK;
}

yoke_status yoke_optimizer_create(yoke_optimizer **optimizer, const yoke_optimizer_options *options,
                                  const yoke_optimizer_ranges *ranges, yoke_device *device,
                                  size_t offset, size_t elements) {
    *optimizer = NULL;
    yoke_optimizer *created = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(sizeof *created, "an optimizer");
    created->device = device;
    created->offset = offset;
    created->elements = elements;
    yoke_status status = yoke_optimizer_options_load(&created->options, options);
    created->whole = (yoke_optimizer_range){.learning_rate_scale = 1,
                                            .weight_decay = created->options.weight_decay,
                                            .elements = elements,
                                            .slot = 1};
    created->ranges = ranges != NULL ? ranges->items : &created->whole;
    created->range_count = ranges != NULL ? ranges->count : 1;
    if (status == YOKE_OK) status = allocate(created, created->states);
    if (status != YOKE_OK) {
        yoke_optimizer_destroy(created);
        return status;
    }
    *optimizer = created;
    return YOKE_OK;
}

void yoke_optimizer_destroy(yoke_optimizer *optimizer) {
    if (optimizer == NULL) return;
    for (int i = YOKE_UPDATE_STATES - 1; i >= 0; i--) {
        if (optimizer->kept[i] != NULL) yoke_device_free(optimizer->device, optimizer->kept[i]);
        if (optimizer->states[i] != NULL) yoke_device_free(optimizer->device, optimizer->states[i]);
    }
    yoke_free(optimizer);
}

yoke_status yoke_optimizer_keep(yoke_optimizer *optimizer) {
    return allocate(optimizer, optimizer->kept);
}

size_t yoke_optimizer_bytes(const yoke_optimizer *optimizer) {
    size_t copies = optimizer->kept[0] != NULL ? 2 : 1;
    return copies * (size_t)yoke_optimizer_state_count(&optimizer->options) * optimizer->elements *
           sizeof(float);
}

size_t yoke_optimizer_work_bytes(const yoke_optimizer_options *options,
                                 const yoke_optimizer_ranges *ranges) {
    size_t most = 0;
    for (int i = 0; ranges != NULL && i < ranges->count; i++) {
        size_t bytes = yoke_whole_bytes(options, &ranges->items[i]);
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Weight decay rests where the gradient comes from no output that the range changes. */
static double decay_of(const yoke_optimizer_step *step, const yoke_optimizer_range *range) {
    bool rests = range->reached_by != 0 && (range->reached_by & ~step->unreached) == 0;
    return rests ? 0 : range->weight_decay;
}

static bool rests(const yoke_optimizer_step *step, const yoke_optimizer_range *range) {
    if (range->steps > 0 && step->step >= range->steps) return true;
    return range->trained_by != 0 && (range->trained_by >> step->model & 1) == 0;
}

static yoke_update_rule rule_of(const yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                const yoke_optimizer_range *range) {
    static const yoke_update_rule resting[] = {YOKE_UPDATE_REST, YOKE_UPDATE_REST_OF_ONE,
                                               YOKE_UPDATE_REST_OF_TWO};
    return rests(step, range) ? resting[yoke_optimizer_state_count(&optimizer->options)]
                              : yoke_optimizer_update_rule(&optimizer->options);
}

/* Updates of the range so far. */
static uint64_t steps_of(const yoke_optimizer_step *step, const yoke_optimizer_range *range) {
    uint64_t steps = 0;
    if (range->trained_by == 0 || step->model_steps == NULL) return step->step;
    for (int model = 0; range->trained_by >> model != 0; model++)
        if (range->trained_by >> model & 1) steps += step->model_steps[model];
    return steps;
}

static yoke_optimizer_options options_of(const yoke_optimizer_options *options,
                                         const yoke_optimizer_range *range) {
    yoke_optimizer_options own = *options;
    if (range->momentum > 0) own.momentum = range->momentum;
    return own;
}

/* Slots. A rule of whole tensors has a second one, for what it applies. */

static bool share_slot(const yoke_optimizer_options *options, const yoke_optimizer_range *a,
                       const yoke_optimizer_range *b) {
    bool whole = yoke_range_is_whole(options, a);
    return a->learning_rate_scale == b->learning_rate_scale && a->weight_decay == b->weight_decay &&
           a->momentum == b->momentum && a->reached_by == b->reached_by &&
           a->trained_by == b->trained_by && whole == yoke_range_is_whole(options, b) &&
           (!whole || (a->matrix.rows == b->matrix.rows && a->matrix.columns == b->matrix.columns));
}

int yoke_optimizer_number_slots(const yoke_optimizer_options *options,
                                yoke_optimizer_ranges *ranges) {
    int used = 0;
    if (ranges == NULL) return 1;
    for (int i = 0; i < ranges->count; i++) {
        yoke_optimizer_range *range = &ranges->items[i];
        int like = 0;
        if (range->steps > 0) return 0; /* a recorded step cannot leave it out from then on */
        while (like < i && !share_slot(options, range, &ranges->items[like]))
            like++;
        range->slot = like < i ? ranges->items[like].slot : used + 1;
        if (like == i) used += yoke_range_is_whole(options, range) ? 2 : 1;
    }
    return used <= YOKE_UPDATE_SLOTS ? used : 0;
}

void yoke_optimizer_slot_scalars(const yoke_optimizer_options *options,
                                 const yoke_optimizer_ranges *ranges,
                                 const yoke_optimizer_step *step,
                                 yoke_float_scalars scalars[YOKE_UPDATE_SLOTS]) {
    const yoke_optimizer_range all = {
        .learning_rate_scale = 1, .weight_decay = options->weight_decay, .slot = 1};
    int last = 0;
    for (int i = 0; i < (ranges != NULL ? ranges->count : 1); i++) {
        const yoke_optimizer_range *range = ranges != NULL ? &ranges->items[i] : &all;
        if (range->slot <= last) continue;
        last = range->slot;
        const yoke_optimizer_options of_range = options_of(options, range);
        yoke_update_scalars own = yoke_optimizer_scalars(
            &of_range, steps_of(step, range), step->learning_rate * range->learning_rate_scale,
            decay_of(step, range));
        scalars[last - 1] = yoke_update_round(&own);
        if (!yoke_range_is_whole(options, range)) continue;
        yoke_whole_applies(options, range, &own);
        scalars[last] = yoke_update_round(&own);
    }
}

/* Updates. */

static float *from(float *values, size_t begin) {
    return values != NULL ? values + begin : NULL;
}

/* The last range that begins at or before `offset`, by bisection. */
static int range_at(const yoke_optimizer *optimizer, size_t offset) {
    int low = 0, high = optimizer->range_count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (optimizer->ranges[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

yoke_status yoke_optimizer_update(yoke_optimizer *optimizer, const yoke_optimizer_step *step,
                                  yoke_device *device, size_t offset, size_t elements,
                                  float *weights, const float *gradients) {
    assert(offset >= optimizer->offset);
    size_t begin = offset - optimizer->offset, done = 0;
    assert(begin <= optimizer->elements && elements <= optimizer->elements - begin);
    for (int i = range_at(optimizer, offset); done < elements; i++) {
        const yoke_optimizer_range *range = &optimizer->ranges[i];
        size_t part = elements - done;
        if (i + 1 < optimizer->range_count && range[1].offset - (offset + done) < part)
            part = range[1].offset - (offset + done);
        const yoke_optimizer_options options = options_of(&optimizer->options, range);
        yoke_update_step update = {
            .rule = rule_of(optimizer, step, range),
            .scalars = yoke_optimizer_scalars(&options, steps_of(step, range),
                                              step->learning_rate * range->learning_rate_scale,
                                              decay_of(step, range)),
            .gradient_scale = step->gradient_scale,
            .gate = step->gate,
            .slot = range->slot,
            .kept_weights = from(step->kept, done),
            .shadow = step->shadow != NULL ? step->shadow + done : NULL,
            .shadow_precision = step->shadow_precision};
        float *states[YOKE_UPDATE_STATES];
        for (int k = 0; k < YOKE_UPDATE_STATES; k++) {
            states[k] = from(optimizer->states[k], begin + done);
            if (step->kept != NULL) update.kept_states[k] = from(optimizer->kept[k], begin + done);
        }
        bool whole = !rests(step, range) && yoke_range_is_whole(&optimizer->options, range);
        assert(!whole || (part >= range->elements && step->work != NULL));
        TRY(whole ? yoke_whole_update(&optimizer->options, range, device, step->stream, &update,
                                      weights + done, gradients + done, states, step->work)
                  : yoke_device_update(device, step->stream, &update, weights + done,
                                       gradients + done, states, part));
        done += part;
    }
    return YOKE_OK;
}

yoke_status yoke_optimizer_undo(yoke_optimizer *optimizer, yoke_stream stream,
                                const yoke_gate *gate) {
    for (int i = 0; i < YOKE_UPDATE_STATES; i++)
        if (optimizer->kept[i] != NULL)
            TRY(yoke_device_undo(optimizer->device, stream, gate, optimizer->states[i],
                                 optimizer->kept[i], optimizer->elements));
    return YOKE_OK;
}

float yoke_clip_scale(double clip_norm, double norm) {
    double scale = clip_norm / (norm + 1e-6);
    /* fmin would hide a norm that is not finite. */
    return scale > 1 ? 1.0f : (float)scale;
}
