/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/live/live.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/live/live_measure.h"
#include "cli/live/live_terminal.h"

#define DRAW_SECONDS 0.25
#define LOSSES_SHOWN 2000
#define EVALUATIONS_MAX 32
/* A frame looks at so many steps and spans at most: microseconds each. */
#define MEASURED_STEPS 32
#define MEASURED_SPANS 2048

struct live_view {
    live_terminal terminal;
    live_numbers numbers;
    live_picture picture;
    const yoke_trace *trace;
    size_t spans_each; /* of a step, as last measured; 0: not yet */
    char title[256], devices_note[64];
    double losses[2 * LOSSES_SHOWN]; /* the last ones move to the front when it is full */
    int loss_count;
    live_evaluation evaluations[EVALUATIONS_MAX];
    double rows, seconds; /* of all steps so far */
    bool has_said_small;
};

/* Remembering. */

static void add_evaluation(live_view *live, const yoke_event *event) {
    live_numbers *numbers = &live->numbers;
    if (numbers->evaluation_count == EVALUATIONS_MAX)
        memmove(live->evaluations, live->evaluations + 1,
                (size_t)--numbers->evaluation_count * sizeof *live->evaluations);
    live->evaluations[numbers->evaluation_count++] = (live_evaluation){event->step, event->loss};
    numbers->test_loss = event->loss;
    numbers->test_accuracy = event->accuracy >= 0 ? event->accuracy : (double)NAN;
}

void live_add(live_view *live, const yoke_event *event) {
    if (event->kind == YOKE_EVENT_EVALUATION) add_evaluation(live, event);
    if (event->kind != YOKE_EVENT_STEP) return;
    if (live->loss_count == 2 * LOSSES_SHOWN) {
        live->loss_count = LOSSES_SHOWN;
        memmove(live->losses, live->losses + LOSSES_SHOWN, LOSSES_SHOWN * sizeof *live->losses);
    }
    live->losses[live->loss_count++] = event->loss;
    live->rows += event->rows;
    live->seconds += 1e-3 * event->step_ms;
}

void live_ready(live_view *live, yoke_trainer *trainer, const device_view *devices) {
    yoke_data_parallel *engine = yoke_trainer_engine(trainer);
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    live_numbers *numbers = &live->numbers;
    if (yoke_trainer_summarize(trainer, &summary) != YOKE_OK) return;
    const char *kind = devices->devices[0].name;
    snprintf(live->title, sizeof live->title, "%s | %s %s%s%s | %d x %.*s | batch %d | %s",
             summary.model, summary.mode, summary.schedule,
             summary.transport != NULL ? " over " : "",
             summary.transport != NULL ? summary.transport : "", summary.devices,
             (int)strcspn(kind, ":"), kind, summary.batch, summary.dataset);
    if (summary.world > 1)
        snprintf(live->devices_note, sizeof live->devices_note, "(rank %d of %d alone)",
                 summary.rank, summary.world);
    int count = yoke_data_parallel_device_count(engine);
    numbers->device_count = count < LIVE_DEVICES_MAX ? count : LIVE_DEVICES_MAX;
    for (int i = 0; i < numbers->device_count; i++)
        snprintf(numbers->devices[i].name, sizeof numbers->devices[i].name, "%s",
                 yoke_data_parallel_device_name(engine, i));
    numbers->unit = rate_unit(yoke_trainer_model(trainer));
    live->trace = yoke_data_parallel_trace(engine);
}

/* Drawing. */

static void fill(live_view *live, const progress *view, const yoke_event *event) {
    live_numbers *numbers = &live->numbers;
    progress_part here = progress_part_of(view, event);
    int shown = live->loss_count < LOSSES_SHOWN ? live->loss_count : LOSSES_SHOWN;
    numbers->epoch = (int)event->epoch + 1;
    numbers->epochs = view->epochs;
    numbers->epoch_done = here.done;
    numbers->epoch_steps = here.all;
    numbers->done = event->step;
    numbers->steps = event->steps;
    numbers->elapsed_s = event->seconds_elapsed;
    numbers->left_s = progress_seconds_left(view, event);
    numbers->images_now = view->rate;
    numbers->images_mean = live->seconds > 0 ? live->rows / live->seconds : (double)NAN;
    numbers->loss = event->loss;
    numbers->losses = live->losses + live->loss_count - shown;
    numbers->loss_count = shown;
    int most = live->spans_each > 0 ? (int)(MEASURED_SPANS / live->spans_each) : 1;
    most = most < 1 ? 1 : most > MEASURED_STEPS ? MEASURED_STEPS : most;
    size_t each = live_measure(live->trace, most, numbers);
    if (each > 0) live->spans_each = each;
}

static void erase(void *context) {
    live_view *live = context;
    live_terminal_erase(&live->terminal);
}

static bool draw(void *context, const progress *view, const yoke_event *event) {
    live_view *live = context;
    live_canvas canvas = live_terminal_canvas(&live->terminal);
    if (live_picture_fits(&canvas)) {
        fill(live, view, event);
        live_picture_draw(&live->numbers, &canvas, &live->picture);
        live_terminal_show(&live->terminal, &live->picture);
        return true;
    }
    erase(live);
    if (!live->has_said_small)
        fprintf(stderr, "yoke: --live needs %d columns and %d rows; with %d and %d: plain lines\n",
                LIVE_COLUMNS_LEAST, LIVE_ROWS_LEAST, canvas.columns, canvas.rows);
    live->has_said_small = true;
    return false;
}

/* Life. */

live_view *live_open(progress *view) {
    live_view *live = calloc(1, sizeof *live);
    if (live == NULL || !live_terminal_open(&live->terminal)) {
        free(live);
        return NULL;
    }
    live->numbers.title = live->title;
    live->numbers.devices_note = live->devices_note;
    live->numbers.evaluations = live->evaluations;
    live->numbers.test_loss = live->numbers.test_accuracy = (double)NAN;
    view->drawer = (progress_drawer){draw, erase, live, DRAW_SECONDS};
    return live;
}

void live_close(live_view *live) {
    if (live == NULL) return;
    live_terminal_close(&live->terminal);
    free(live);
}
