/* SPDX-License-Identifier: Apache-2.0 */
/* What verify found: a table with one row for each pair of modes, then where they first differ. */
#include <inttypes.h>
#include <math.h>

#include "cli/cli.h"
#include "cli/verify/verify.h"

static const char *bar_name(verify_bar bar) {
    static const char *const names[] = {"bits", "tolerance", "nothing"};
    return names[bar];
}

/* "ddp on 2", "the file". */
static void name_mode(char text[48], const verify_mode *mode) {
    if (mode->devices > 1)
        snprintf(text, 48, "%s on %d", verify_mode_name(mode), mode->devices);
    else
        snprintf(text, 48, "%s", verify_mode_name(mode));
}

static const char *verdict_of(const verify_pair *pair, double tolerance) {
    if (!verify_pair_passes(pair, tolerance)) return "DIFFERS";
    if (!pair->differs) return "same bits";
    return pair->bar == VERIFY_NOTHING ? "(batch norm)" : "rounding";
}

static void print_ulp(char text[24], int64_t ulp) {
    if (ulp == INT64_MAX)
        snprintf(text, 24, "NaN");
    else
        snprintf(text, 24, "%" PRId64, ulp);
}

static void print_pair(FILE *out, const verification *all, const verify_pair *pair) {
    char mode[48], with[48], ulp[24], gradients[16] = "-";
    name_mode(mode, pair->mode);
    name_mode(with, pair->with);
    print_ulp(ulp, pair->ulp);
    if (pair->gradient_relative >= 0)
        snprintf(gradients, sizeof gradients, "%.1e", pair->gradient_relative);
    fprintf(out, "%-13s %-15s %4d of %-4d %11s  %9.1e  %9s  %s\n", mode, with, pair->equal_steps,
            pair->steps, ulp, pair->relative, gradients, verdict_of(pair, all->tolerance));
}

static void print_first(FILE *out, const verify_pair *pair) {
    const verify_element *first = &pair->first;
    char mode[48], with[48], ulp[24];
    if (!pair->differs) return;
    name_mode(mode, pair->mode);
    name_mode(with, pair->with);
    print_ulp(ulp, first->ulp);
    fprintf(out, "%s and %s first differ in step %d, %s%s, element %zu:\n  %.9g and %.9g, %s ULP\n",
            mode, with, first->step, first->gradient ? "the gradient of " : "", first->tensor,
            first->index, first->value, first->other, ulp);
}

static void print_scale(FILE *out, const verify_pair *pair) {
    const verify_scale *scale = &pair->scale;
    char mode[48], with[48];
    if (scale->tensor == NULL) return;
    name_mode(mode, pair->mode);
    name_mode(with, pair->with);
    fprintf(out, "%s computes %.6g times the gradient of %s in step %d: %s.\n", mode, scale->factor,
            with, scale->step, scale->tensor);
}

static void print_sentences(FILE *out, const verification *all) {
    bool stands_alone = false;
    for (int i = 0; i < all->pair_count; i++)
        stands_alone = stands_alone || all->pairs[i].bar == VERIFY_NOTHING;
    for (int i = 0; i < 2; i++)
        if (all->left_out[i][0] != '\0') fprintf(out, "%s\n", all->left_out[i]);
    if (stands_alone)
        fprintf(out, "Batch norm normalizes the rows of each device alone, so single computes "
                     "something else than\nseveral devices do.\n");
    if (all->pair_count == 0)
        fprintf(out, "One mode alone: nothing was compared, and nothing is proven.\n");
    else if (!verify_compared(all))
        fprintf(out, "NOTHING WAS COMPARED: no step of the modes that must agree.\n");
    else if (!verify_passes(all))
        fprintf(out,
                "MODES DIFFER: by more than the tolerance of %g, by a factor, or where bits must "
                "be equal.\n",
                all->tolerance);
    else
        fprintf(out, "All modes agree: bit for bit where they must, elsewhere within %g.\n",
                all->tolerance);
}

static const char *const algorithms[] = {"measured", "direct", "fastest"};

void verify_print(FILE *out, const verification *all) {
    const compare_setup *setup = &all->setup;
    fprintf(out, "model    %s, %zu parameters, float32, %s algorithms\n", setup->model,
            yoke_model_parameter_count(all->model), algorithms[setup->algorithm]);
    fprintf(out, "data     %s, %d steps with batches of %d, seed %" PRIu64 "\n", setup->dataset,
            all->steps, setup->batch, setup->seed);
    fprintf(out, "devices  %d, the first is %s\n", setup->device_count, setup->names[0]);
    if (all->against != NULL) fprintf(out, "file     %s\n", all->against);
    if (all->pair_count > 0)
        fprintf(out, "\n%-13s %-15s %12s %11s  %9s  %9s\n", "mode", "compared with", "equal steps",
                "largest ULP", "relative", "gradients");
    for (int i = 0; i < all->pair_count; i++)
        print_pair(out, all, &all->pairs[i]);
    fputc('\n', out);
    for (int i = 0; i < all->pair_count; i++)
        print_first(out, &all->pairs[i]);
    for (int i = 0; i < all->pair_count; i++)
        print_scale(out, &all->pairs[i]);
    print_sentences(out, all);
}

/* For scripts. */

static void json_first(yoke_json *json, const verify_element *first) {
    yoke_json_open(json, "first", '{');
    yoke_json_integer(json, "step", first->step);
    yoke_json_text(json, "tensor", first->tensor);
    yoke_json_boolean(json, "gradient", first->gradient);
    yoke_json_integer(json, "element", (int64_t)first->index);
    yoke_json_real(json, "value", first->value);
    yoke_json_real(json, "other", first->other);
    yoke_json_integer(json, "ulp", first->ulp);
    yoke_json_close(json, '}');
}

static void json_pair(yoke_json *json, const verification *all, const verify_pair *pair) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "mode", verify_mode_name(pair->mode));
    yoke_json_integer(json, "devices", pair->mode->devices);
    yoke_json_text(json, "with", verify_mode_name(pair->with));
    yoke_json_text(json, "must_agree_by", bar_name(pair->bar));
    yoke_json_boolean(json, "passes", verify_pair_passes(pair, all->tolerance));
    yoke_json_integer(json, "steps", pair->steps);
    yoke_json_integer(json, "equal_steps", pair->equal_steps);
    yoke_json_integer(json, "largest_ulp", pair->ulp);
    yoke_json_real(json, "relative", pair->relative);
    if (pair->gradient_relative >= 0)
        yoke_json_real(json, "gradient_relative", pair->gradient_relative);
    if (pair->differs) json_first(json, &pair->first);
    if (pair->scale.tensor != NULL) {
        yoke_json_open(json, "scaled", '{');
        yoke_json_integer(json, "step", pair->scale.step);
        yoke_json_text(json, "tensor", pair->scale.tensor);
        yoke_json_real(json, "factor", pair->scale.factor);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, '}');
}

yoke_status verify_print_json(FILE *out, const verification *all) {
    const compare_setup *setup = &all->setup;
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    yoke_json_text(&json, "model", setup->model);
    yoke_json_text(&json, "dataset", setup->dataset);
    yoke_json_text(&json, "algorithm", algorithms[setup->algorithm]);
    yoke_json_integer(&json, "devices", setup->device_count);
    yoke_json_integer(&json, "batch", setup->batch);
    yoke_json_integer(&json, "steps", all->steps);
    yoke_json_real(&json, "tolerance", all->tolerance);
    yoke_json_boolean(&json, "batch_norm", all->batch_norm);
    if (all->pair_count > 0)
        yoke_json_boolean(&json, "passes", verify_passes(all));
    else
        yoke_json_null(&json, "passes");
    yoke_json_open(&json, "pairs", '[');
    for (int i = 0; i < all->pair_count; i++)
        json_pair(&json, all, &all->pairs[i]);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
