/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison for scripts: everything that the result holds. */
#include <math.h>

#include "cli/cli.h"
#include "cli/compare/compare.h"

static const char *const algorithms[] = {"measured", "direct", "fastest"};

static void json_setup(yoke_json *json, const compare_result *result) {
    const compare_setup *setup = &result->setup;
    yoke_json_text(json, "model", setup->model);
    yoke_json_integer(json, "parameters", (int64_t)result->parameters);
    yoke_json_boolean(json, "batch_norm", result->batch_norm);
    yoke_json_text(json, "dataset", setup->dataset);
    yoke_json_text(json, "precision", yoke_precision_names[setup->precision]);
    yoke_json_text(json, "algorithm", algorithms[setup->algorithm]);
    yoke_json_text(json, "optimizer", yoke_optimizer_name(setup->optimizer.kind));
    yoke_json_real(json, "learning_rate", setup->optimizer.learning_rate);
    yoke_json_integer(json, "batch", setup->batch);
    yoke_json_integer(json, "seed", (int64_t)setup->seed);
    if (setup->bucket_mb > 0) yoke_json_real(json, "bucket_mb", setup->bucket_mb);
    if (setup->link[0] != '\0') yoke_json_text(json, "link", setup->link);
    if (!isnan(setup->interpreter_us))
        yoke_json_real(json, "interpreter_us", setup->interpreter_us);
    if (setup->straggler_factor > 0) {
        yoke_json_integer(json, "straggler", setup->straggler);
        yoke_json_real(json, "straggler_factor", setup->straggler_factor);
    }
    if (setup->share_count > 0) {
        yoke_json_open(json, "rows_of_devices", '[');
        for (int i = 0; i < setup->device_count; i++)
            yoke_json_integer(json, NULL, compare_setup_rows(setup, setup->device_count, i).count);
        yoke_json_close(json, ']');
    }
    if (compare_find(result, COMPARE_LOCAL, setup->device_count) != NULL)
        yoke_json_integer(json, "sync_every", setup->sync_every);
    if (result->torch[0] != '\0') yoke_json_text(json, "torch", result->torch);
    yoke_json_text(json, "processor", result->processor);
    yoke_json_integer(json, "cores", result->cores);
    yoke_json_integer(json, "threads", setup->threads);
    yoke_json_open(json, "devices", '[');
    for (int i = 0; i < setup->device_count; i++)
        yoke_json_text(json, NULL, setup->names[i]);
    yoke_json_close(json, ']');
}

static void json_race(yoke_json *json, const compare_result *result) {
    yoke_json_integer(json, "steps", result->steps);
    yoke_json_integer(json, "rounds", result->rounds);
    yoke_json_integer(json, "repeated", result->repeated);
    yoke_json_integer(json, "disturbed", result->disturbed);
    yoke_json_text(json, "low_high", result->interval ? "95 % interval" : "range");
    yoke_json_open(json, "seconds", '{');
    yoke_json_real(json, "limit", result->seconds_limit);
    yoke_json_real(json, "learning", result->seconds_learning);
    yoke_json_real(json, "preparing", result->seconds_preparing);
    yoke_json_real(json, "racing", result->seconds_racing);
    yoke_json_close(json, '}');
}

static void json_ratio(yoke_json *json, const char *key, race_ratio ratio) {
    yoke_json_open(json, key, '{');
    yoke_json_real(json, "median", ratio.median);
    yoke_json_real(json, "low", ratio.low);
    yoke_json_real(json, "high", ratio.high);
    yoke_json_close(json, '}');
}

static void json_learned(yoke_json *json, const compare_result *result, const compare_mode *mode) {
    if (result->learn_steps == 0) return;
    yoke_json_real(json, "loss", mode->losses[result->learn_steps - 1]);
    yoke_json_open(json, "losses", '[');
    for (int i = 0; i < result->learn_steps; i++)
        yoke_json_real(json, NULL, mode->losses[i]);
    yoke_json_close(json, ']');
    if (!compare_is_torch(mode->kind)) yoke_json_hash(json, "weights_hash", mode->weights_hash);
    yoke_json_text(json, "equality", compare_verdict_name(mode->verdict));
    if (mode->compared_with < 0) return;
    yoke_json_text(json, "compared_with",
                   compare_kind_name(result->modes[mode->compared_with].kind));
    if (mode->compared_steps < result->learn_steps)
        yoke_json_integer(json, "compared_steps", mode->compared_steps);
    yoke_json_real(json, "largest_difference", mode->difference);
}

static void json_part(yoke_json *json, const char *name, double ms, double step_ms, double bytes) {
    yoke_json_open(json, name, '{');
    yoke_json_real(json, "ms", ms);
    yoke_json_real(json, "share", ms / step_ms);
    yoke_json_real(json, "bytes", bytes);
    yoke_json_close(json, '}');
}

/* Idle time and the stages that ran, which add up to the step. */
static void json_stages(yoke_json *json, const yoke_account *account) {
    yoke_json_open(json, "stages", '{');
    for (int stage = 0; stage < YOKE_STAGE_COUNT; stage++)
        if (account->stage_ms[stage] > 0)
            json_part(json, yoke_stage_name((yoke_stage)stage), account->stage_ms[stage],
                      account->step_ms, account->bytes[stage]);
    json_part(json, yoke_account_name(YOKE_STAGE_IDLE), account->stage_ms[YOKE_STAGE_IDLE],
              account->step_ms, 0);
    json_part(json, "step", account->step_ms, account->step_ms, compare_moved(account));
    yoke_json_close(json, '}');
}

static void json_parts(yoke_json *json, const compare_mode *mode) {
    yoke_json_open(json, "parts", '[');
    for (int i = 0; i < mode->devices; i++) {
        const yoke_account *account = &mode->parts[i].account;
        yoke_json_open(json, NULL, '{');
        yoke_json_text(json, "name", mode->parts[i].name);
        json_stages(json, account);
        if (account->sent + account->received != 0) {
            yoke_json_real(json, "sent_bytes", account->sent);
            yoke_json_real(json, "received_bytes", account->received);
        }
        const compare_memory *memory = &mode->parts[i].memory;
        yoke_json_open(json, "memory_bytes", '{');
        yoke_json_real(json, "weights", memory->weights);
        yoke_json_real(json, "gradients", memory->gradients);
        yoke_json_real(json, "optimizer", memory->optimizer);
        yoke_json_real(json, "activations", memory->activations);
        yoke_json_real(json, "other", memory->other);
        yoke_json_real(json, "total", memory->total);
        yoke_json_close(json, '}');
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
}

static double since(const compare_step *step, uint64_t ns) {
    return 1e-6 * ((double)ns - (double)step->begin_ns);
}

static void json_spans(yoke_json *json, const compare_step *step) {
    yoke_json_open(json, "recorded_step", '{');
    yoke_json_real(json, "ms", step->milliseconds);
    if (step->left_out > 0) yoke_json_integer(json, "left_out", step->left_out);
    yoke_json_open(json, "spans", '[');
    for (int i = 0; i < step->count; i++) {
        const yoke_span_info *span = &step->spans[i];
        yoke_json_open(json, NULL, '{');
        bool of_link = span->lane < 0;
        yoke_json_integer(json, of_link ? "link" : "device",
                          of_link ? COMPARE_LINK_OF(span->lane) : span->lane);
        yoke_json_text(json, "stage", yoke_stage_name(span->stage));
        if (span->bucket >= 0) yoke_json_integer(json, "bucket", span->bucket);
        if (span->awaits != YOKE_STAGE_COUNT)
            yoke_json_text(json, "awaits", yoke_stage_name(span->awaits));
        yoke_json_real(json, "begin_ms", since(step, span->begin_ns));
        yoke_json_real(json, "end_ms", since(step, span->end_ns));
        yoke_json_real(json, "bytes", (double)span->bytes);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, ']');
    yoke_json_close(json, '}');
}

static void json_recorded(yoke_json *json, const compare_mode *mode) {
    if (mode->parts == NULL) {
        yoke_json_null(json, "stages");
        yoke_json_null(json, "parts");
        yoke_json_null(json, "recorded_step");
        return;
    }
    yoke_account mean = compare_mean_account(mode);
    json_stages(json, &mean);
    json_parts(json, mode);
    json_spans(json, &mode->step);
}

static void json_staleness(yoke_json *json, const compare_staleness *staleness) {
    if (staleness->pushes == 0) return;
    yoke_json_open(json, "staleness", '{');
    yoke_json_real(json, "mean", staleness->mean);
    yoke_json_integer(json, "most", staleness->most);
    yoke_json_integer(json, "pushes", (int64_t)staleness->pushes);
    yoke_json_close(json, '}');
}

static void json_mode(yoke_json *json, const compare_result *result, const compare_mode *mode) {
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "name", compare_kind_name(mode->kind));
    yoke_json_integer(json, "devices", mode->devices);
    yoke_json_integer(json, "threads", mode->threads);
    if (mode->transport[0] != '\0') yoke_json_text(json, "transport", mode->transport);
    json_learned(json, result, mode);
    json_ratio(json, "step_ms", mode->step_ms);
    json_ratio(json, "images_per_second", mode->images_per_second);
    json_ratio(json, "speedup", mode->speedup);
    if (!isnan(mode->speedup_all_cores.median))
        json_ratio(json, "speedup_all_cores", mode->speedup_all_cores);
    json_ratio(json, "efficiency", mode->efficiency);
    yoke_json_open(json, "round_ms", '[');
    for (int i = 0; i < result->rounds; i++)
        yoke_json_real(json, NULL, mode->round_ms[i]);
    yoke_json_close(json, ']');
    json_staleness(json, &mode->staleness);
    json_recorded(json, mode);
    yoke_json_close(json, '}');
}

yoke_status compare_print_json(FILE *out, const compare_result *result) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_setup(&json, result);
    yoke_json_integer(&json, "learn_steps", result->learn_steps);
    yoke_json_real(&json, "tolerance", result->tolerance);
    yoke_json_boolean(&json, "equal", compare_all_equal(result));
    json_race(&json, result);
    yoke_json_open(&json, "contenders", '[');
    for (int i = 0; i < result->mode_count; i++)
        json_mode(&json, result, &result->modes[i]);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
