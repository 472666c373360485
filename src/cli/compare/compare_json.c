/* A comparison for scripts: the content of the tables, and every round. */
#include "cli/cli.h"
#include "cli/compare/compare.h"

static const char *const precisions[] = {"float32", "bfloat16", "tf32"};
static const char *const algorithms[] = {"measured", "direct"};

static void json_setup(yoke_json *json, const comparison *all) {
    const compare_setup *setup = &all->setup;
    yoke_json_text(json, "model", setup->model);
    yoke_json_integer(json, "parameters", (int64_t)all->contenders[0].facts.parameters);
    yoke_json_boolean(json, "batch_norm", all->contenders[0].facts.batch_norm);
    yoke_json_text(json, "dataset", setup->dataset);
    yoke_json_text(json, "precision", precisions[setup->precision]);
    yoke_json_text(json, "algorithm", algorithms[setup->algorithm]);
    yoke_json_text(json, "optimizer", setup->optimizer.kind == YOKE_SGD ? "sgd" : "adamw");
    yoke_json_real(json, "learning_rate", setup->optimizer.learning_rate);
    yoke_json_integer(json, "batch", setup->batch);
    yoke_json_integer(json, "seed", (int64_t)setup->seed);
    yoke_json_text(json, "processor", all->processor);
    yoke_json_integer(json, "threads", setup->threads);
    yoke_json_open(json, "devices", '[');
    for (int i = 0; i < setup->device_count; i++)
        yoke_json_text(json, NULL, setup->names[i]);
    yoke_json_close(json, ']');
}

static void json_ratio(yoke_json *json, const char *key, race_ratio ratio) {
    yoke_json_open(json, key, '{');
    yoke_json_real(json, "median", ratio.median);
    yoke_json_real(json, "low", ratio.low);
    yoke_json_real(json, "high", ratio.high);
    yoke_json_close(json, '}');
}

static void json_learned(yoke_json *json, const comparison *all,
                         const compare_contender *contender) {
    const compare_learned *learned = &contender->learned;
    compare_equality equality = compare_equality_of(all, contender);
    if (learned->steps == 0) return;
    yoke_json_real(json, "loss", learned->losses[learned->steps - 1]);
    yoke_json_open(json, "losses", '[');
    for (int i = 0; i < learned->steps; i++)
        yoke_json_real(json, NULL, learned->losses[i]);
    yoke_json_close(json, ']');
    yoke_json_hash(json, "weights_hash", learned->hash);
    yoke_json_text(json, "equality", compare_verdict_name(equality.verdict));
    if (equality.with == NULL) return;
    yoke_json_text(json, "compared_with", compare_kind_name(equality.with->kind));
    yoke_json_real(json, "largest_difference", equality.difference);
}

static void json_stages(yoke_json *json, const compare_stages *stages) {
    yoke_json_open(json, "stages", '{');
    for (int i = 0; i < stages->count; i++) {
        yoke_json_open(json, yoke_stage_name(stages->rows[i].stage), '{');
        yoke_json_real(json, "ms", stages->rows[i].median_ms);
        yoke_json_real(json, "share", stages->rows[i].share);
        yoke_json_real(json, "bytes", stages->rows[i].bytes);
        yoke_json_close(json, '}');
    }
    yoke_json_close(json, '}');
}

static void json_contender(yoke_json *json, const comparison *all,
                           const compare_contender *contender) {
    int index = compare_index(all, contender);
    yoke_json_open(json, NULL, '{');
    yoke_json_text(json, "name", compare_kind_name(contender->kind));
    yoke_json_integer(json, "devices", contender->devices);
    if (contender->facts.transport[0] != '\0')
        yoke_json_text(json, "transport", contender->facts.transport);
    json_learned(json, all, contender);
    json_ratio(json, "step_ms", race_times(&all->race, index, 1));
    json_ratio(json, "images_per_second", compare_images(all, contender));
    json_ratio(json, "speedup", compare_speedup(all, contender));
    json_ratio(json, "efficiency", compare_efficiency(all, contender));
    yoke_json_open(json, "round_ms", '[');
    for (int i = 0; i < all->race.done; i++)
        yoke_json_real(json, NULL, all->race.milliseconds[i][index]);
    yoke_json_close(json, ']');
    json_stages(json, &contender->stages);
    yoke_json_close(json, '}');
}

yoke_status compare_print_json(FILE *out, const comparison *all) {
    yoke_json json;
    yoke_json_begin(&json);
    yoke_json_open(&json, NULL, '{');
    json_setup(&json, all);
    yoke_json_integer(&json, "learn_steps", all->learn_steps);
    yoke_json_real(&json, "tolerance", all->tolerance);
    yoke_json_boolean(&json, "equal", compare_all_equal(all));
    yoke_json_integer(&json, "steps", all->race.steps);
    yoke_json_integer(&json, "rounds", all->race.done);
    yoke_json_integer(&json, "repeated", all->race.repeated);
    yoke_json_integer(&json, "disturbed", all->race.noisy);
    yoke_json_open(&json, "contenders", '[');
    for (int i = 0; i < all->count; i++)
        json_contender(&json, all, &all->contenders[i]);
    yoke_json_close(&json, ']');
    yoke_json_close(&json, '}');
    return cli_print_json(&json, out);
}
