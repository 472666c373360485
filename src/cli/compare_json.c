/* A comparison for scripts: all that the tables have, and every round. */
#include "compare.h"
#include "emit.h"

static const char *const precisions[] = {"float32", "bfloat16", "tf32"};
static const char *const algorithms[] = {"measured", "direct"};

static void emit_setup(emit *json, const comparison *all) {
    const compare_setup *setup = &all->setup;
    emit_text(json, "model", setup->model);
    emit_integer(json, "parameters", (int64_t)all->contenders[0].facts.parameters);
    emit_boolean(json, "batch_norm", all->contenders[0].facts.batch_norm);
    emit_text(json, "dataset", setup->dataset);
    emit_text(json, "precision", precisions[setup->precision]);
    emit_text(json, "algorithm", algorithms[setup->algorithm]);
    emit_text(json, "optimizer", setup->optimizer.kind == YOKE_SGD ? "sgd" : "adamw");
    emit_real(json, "learning_rate", setup->optimizer.learning_rate);
    emit_integer(json, "batch", setup->batch);
    emit_integer(json, "seed", (int64_t)setup->seed);
    emit_text(json, "processor", all->processor);
    emit_integer(json, "threads", setup->threads);
    emit_open(json, "devices", '[');
    for (int i = 0; i < setup->device_count; i++)
        emit_text(json, NULL, setup->names[i]);
    emit_close(json, ']');
}

static void emit_ratio(emit *json, const char *key, race_ratio ratio) {
    emit_open(json, key, '{');
    emit_real(json, "median", ratio.median);
    emit_real(json, "low", ratio.low);
    emit_real(json, "high", ratio.high);
    emit_close(json, '}');
}

static void emit_learned(emit *json, const comparison *all, const compare_contender *contender) {
    const compare_learned *learned = &contender->learned;
    compare_equality equality = compare_equality_of(all, contender);
    if (learned->steps == 0) return;
    emit_real(json, "loss", learned->losses[learned->steps - 1]);
    emit_open(json, "losses", '[');
    for (int i = 0; i < learned->steps; i++)
        emit_real(json, NULL, learned->losses[i]);
    emit_close(json, ']');
    emit_hash(json, "weights_hash", learned->hash);
    emit_text(json, "equality", compare_verdict_name(equality.verdict));
    if (equality.with == NULL) return;
    emit_text(json, "compared_with", compare_kind_name(equality.with->kind));
    emit_real(json, "largest_difference", equality.difference);
}

static void emit_stages(emit *json, const compare_stages *stages) {
    emit_open(json, "stages", '{');
    for (int i = 0; i < stages->count; i++) {
        emit_open(json, yoke_stage_name(stages->rows[i].stage), '{');
        emit_real(json, "ms", stages->rows[i].median_ms);
        emit_real(json, "share", stages->rows[i].share);
        emit_real(json, "bytes", stages->rows[i].bytes);
        emit_close(json, '}');
    }
    emit_close(json, '}');
}

static void emit_contender(emit *json, const comparison *all, const compare_contender *contender) {
    int index = compare_index(all, contender);
    emit_open(json, NULL, '{');
    emit_text(json, "name", compare_kind_name(contender->kind));
    emit_integer(json, "devices", contender->devices);
    if (contender->facts.transport[0] != '\0')
        emit_text(json, "transport", contender->facts.transport);
    emit_learned(json, all, contender);
    emit_ratio(json, "step_ms", race_times(&all->race, index, 1));
    emit_ratio(json, "images_per_second", compare_images(all, contender));
    emit_ratio(json, "speedup", compare_speedup(all, contender));
    emit_ratio(json, "efficiency", compare_efficiency(all, contender));
    emit_open(json, "round_ms", '[');
    for (int i = 0; i < all->race.done; i++)
        emit_real(json, NULL, all->race.milliseconds[i][index]);
    emit_close(json, ']');
    emit_stages(json, &contender->stages);
    emit_close(json, '}');
}

void compare_emit(FILE *out, const comparison *all) {
    emit json;
    emit_begin(&json, out);
    emit_open(&json, NULL, '{');
    emit_setup(&json, all);
    emit_integer(&json, "learn_steps", all->learn_steps);
    emit_real(&json, "tolerance", all->tolerance);
    emit_boolean(&json, "equal", compare_all_equal(all));
    emit_integer(&json, "steps", all->race.steps);
    emit_integer(&json, "rounds", all->race.done);
    emit_integer(&json, "repeated", all->race.repeated);
    emit_integer(&json, "disturbed", all->race.noisy);
    emit_open(&json, "contenders", '[');
    for (int i = 0; i < all->count; i++)
        emit_contender(&json, all, &all->contenders[i]);
    emit_close(&json, ']');
    emit_close(&json, '}');
    emit_end(&json);
}
