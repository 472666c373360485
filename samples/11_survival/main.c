/* SPDX-License-Identifier: Apache-2.0 */
/* A host program that trains on four devices, of which one fails and one hangs, beside a run in
 * which nothing happens: both end with the same weights. */
#include <stdio.h>
#include <stdlib.h>
#include <yoke/yoke.h>

static void must(yoke_status status) {
    if (status == YOKE_OK) return;
    fprintf(stderr, "%s\n", yoke_last_error());
    exit(yoke_status_exit_code(status));
}

/* With a deadline events come from a thread of the trainer. */
static void on_event(const yoke_event *event, void *payload) {
    (void)payload;
    if (event->kind == YOKE_EVENT_LOST) printf("%s\n", event->text);
    if (event->kind == YOKE_EVENT_EPOCH)
        printf("epoch %d  %d rows  loss %.4f  on test rows %.4f\n", (int)event->epoch + 1,
               event->rows, event->loss, event->test_loss);
}

/* fault: what happens to which device, to see it; NULL: nothing. */
static yoke_trainer_summary train(const char *fault) {
    yoke_data_parallel_options engine = YOKE_DATA_PARALLEL_OPTIONS_INIT;
    yoke_trainer_options options = YOKE_TRAINER_OPTIONS_INIT;
    yoke_trainer_summary summary = {.struct_size = sizeof summary};
    yoke_trainer *trainer = NULL;
    engine.shards = 8;   /* any number of devices computes the same bits */
    engine.deadline = 2; /* seconds in which a device has to be done with a stage */
    engine.fault = fault;
    options.engine = &engine;
    options.model = "mlp:width=64";
    options.dataset = "synthetic:1x28x28,classes=10,rows=2048";
    options.devices = "4xcpu";
    options.threads = 1;
    options.epochs = 3;
    options.evaluate_every = 1;
    options.seed = 1;
    options.survive = true;
    options.on_event = on_event;
    must(yoke_trainer_create(&trainer, &options));
    must(yoke_trainer_run(trainer));
    must(yoke_trainer_summarize(trainer, &summary));
    yoke_trainer_destroy(trainer); /* but for what the thread that hangs may still use */
    return summary;
}

int main(void) {
    printf("one device fails, and the root hangs:\n");
    yoke_trainer_summary some = train("error:2@20,hang:0@50:forward");
    printf("%d devices lost, %d left\n\nnothing happens:\n", some.lost, some.devices);
    yoke_trainer_summary all = train(NULL);
    bool equal = some.weights_hash == all.weights_hash;
    printf("the weights are %s\n", equal ? "the same, bit for bit" : "others");
    return equal ? 0 : 1;
}
