/* SPDX-License-Identifier: Apache-2.0 */
#include "train/run_facts.h"

#include <stdio.h>

yoke_status yoke_run_threads(const yoke_run *run, uint64_t *threads) {
    yoke_device_info root = {.struct_size = sizeof root};
    TRY(yoke_devices_describe(run->devices, 0, &root));
    *threads = root.capability > 0 ? 0 : (uint64_t)root.threads;
    return YOKE_OK;
}

/* "crop-flip, color jitter 0.4 0.4 0.4 0.1, erasing 0.25": what is off is not named, so that
 * checkpoints from before it existed still match. */
const char *yoke_augmentation_text(const yoke_trainer_options *options,
                                   char text[YOKE_AUGMENTATION_BYTES]) {
    static const char *const kinds[] = {"none", "crop-flip", "crop-flip-cutout",
                                        "resized-crop-flip"};
    const yoke_color_jitter *jitter = &options->color_jitter;
    const double strengths[] = {jitter->brightness, jitter->contrast, jitter->saturation,
                                jitter->hue};
    const size_t size = YOKE_AUGMENTATION_BYTES;
    char number[32];
    size_t used = (size_t)snprintf(text, size, "%s", kinds[options->augment]);
    for (int i = 0; yoke_color_jitter_on(jitter) && i < 4; i++)
        used += (size_t)snprintf(text + used, size - used, "%s %s", i == 0 ? ", color jitter" : "",
                                 yoke_text_of_real(strengths[i], number, sizeof number));
    if (options->erasing > 0)
        used += (size_t)snprintf(text + used, size - used, ", erasing %s",
                                 yoke_text_of_real(options->erasing, number, sizeof number));
    if (options->mixup > 0)
        snprintf(text + used, size - used, ", mixup %s",
                 yoke_text_of_real(options->mixup, number, sizeof number));
    return text;
}

void yoke_run_add_facts(const yoke_run *run, const yoke_watch *watch, yoke_facts *facts) {
    static const char *const schedules[] = {"constant", "step",        "cosine",
                                            "onecycle", "exponential", "plateau"};
    const yoke_trainer_options *options = &run->options;
    const yoke_dataset_info *rows = &run->training.info;
    char augmentation[YOKE_AUGMENTATION_BYTES], loss[YOKE_LOSS_TEXT_BYTES], count[24] = "unknown";
    if (rows->rows > 0) snprintf(count, sizeof count, "%zu", rows->rows);
    yoke_facts_add(facts, "config.dataset", "%s of %s rows %dx%dx%d, %d classes, %d targets",
                   rows->name, count, rows->shape.channels, rows->shape.height, rows->shape.width,
                   rows->classes, rows->target_count);
    yoke_facts_add(facts, "config.labels", "%s", run->labels);
    yoke_facts_add(facts, "config.shuffle", "%s",
                   options->sampling == YOKE_SAMPLING_BALANCED ? "balanced"
                   : options->no_shuffle                       ? "no"
                                                               : "yes");
    yoke_facts_add(facts, "config.drop_last", "%s", options->drop_last ? "yes" : "no");
    yoke_facts_add(facts, "config.augment", "%s", yoke_augmentation_text(options, augmentation));
    yoke_facts_add(facts, "config.loss", "%s",
                   options->own_loss != NULL ? "the host's"
                                             : yoke_model_loss_text(run->model, loss));
    yoke_facts_add_real(facts, "config.label_smoothing", options->label_smoothing);
    yoke_facts_add(facts, "config.lr_schedule", "%s", schedules[options->lr_schedule]);
    yoke_facts_add(facts, "config.warmup_steps", "%llu", (unsigned long long)options->warmup_steps);
    bool by_epochs = options->lr_schedule == YOKE_LR_EXPONENTIAL;
    bool by_losses = options->lr_schedule == YOKE_LR_PLATEAU;
    if (by_epochs) yoke_facts_add_real(facts, "config.lr_gamma", run->schedule.gamma);
    if (by_losses) yoke_facts_add_real(facts, "config.lr_gamma", watch->plateau.factor);
    if (by_losses) yoke_facts_add(facts, "config.lr_patience", "%d", options->lr_patience);
    /* Where the rate does not depend on the end, a run may be resumed to more steps. */
    bool open = options->lr_schedule == YOKE_LR_CONSTANT || by_epochs || by_losses;
    snprintf(count, sizeof count, "unknown");
    if (run->at.steps < UINT64_MAX)
        snprintf(count, sizeof count, "%llu", (unsigned long long)run->at.steps);
    yoke_facts_add(facts, open ? "run.steps" : "config.steps", "%s", count);
    yoke_facts_add(facts, "run.dataset", "%s", options->dataset);
    uint64_t threads;
    if (yoke_run_threads(run, &threads) == YOKE_OK)
        yoke_facts_add(facts, YOKE_FACT_THREADS, "%llu", (unsigned long long)threads);
    yoke_facts_add(facts, "run.ranks", "%d",
                   run->ranks != NULL ? yoke_process_group_world(run->ranks) : 1);
}
