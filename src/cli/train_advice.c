/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/train_advice.h"

#include <string.h>
#include <unistd.h>

/* The same command with another option. It may meet files of the run that it repeats. */
static void print_again(FILE *out, const train_advice *run, const char *option, const char *file) {
    fprintf(out, "    ");
    for (int i = 0; run->command[i] != NULL; i++) {
        cli_print_word(out, run->command[i]);
        fputc(' ', out);
    }
    const train_setup *setup = run->setup;
    bool resumes = train_setup_is_auto(setup);
    if (setup->run.checkpoint_dir != NULL && !resumes) fprintf(out, "--resume auto ");
    if (setup->run.save != NULL && !setup->force) fprintf(out, "--force ");
    fprintf(out, "%s ", option);
    cli_print_word(out, file);
    fputc('\n', out);
}

/* "resnet20.safetensors", or the first of "resnet20-2.safetensors", ... that does not exist;
 * without the options of the model. */
static const char *free_name(const char *model, char name[128]) {
    int length = (int)strcspn(model, ":");
    if (length > 96) length = 96;
    snprintf(name, 128, "%.*s.safetensors", length, model);
    for (int i = 2; i < 1000 && access(name, F_OK) == 0; i++)
        snprintf(name, 128, "%.*s-%d.safetensors", length, model, i);
    return name;
}

/* "    yoke evaluate --weights FILE". */
static void print_verb(FILE *out, const train_advice *run, const char *verb) {
    fprintf(out, "    ");
    cli_print_word(out, run->command[0]);
    fprintf(out, " %s --weights ", verb);
    cli_print_word(out, run->setup->run.save);
}

static void print_use(FILE *out, const train_advice *run) {
    fprintf(out, "  evaluate the saved weights:\n");
    print_verb(out, run, "evaluate");
    fprintf(out, " --dataset ");
    cli_print_word(out, run->setup->run.dataset);
    if (strncmp(run->setup->run.dataset, "text:", 5) == 0) {
        fprintf(out, "\n  let them write a text:\n");
        print_verb(out, run, "generate");
    } else if (strncmp(run->setup->run.dataset, "pairs:", 6) == 0) {
        fprintf(out, "\n  let them write the target of a source:\n");
        print_verb(out, run, "generate");
        fprintf(out, " --prompt TEXT");
    } else {
        fprintf(out, "\n  see what they make of each test row%s:\n",
                strncmp(run->setup->run.dataset, "images:", 7) == 0
                    ? "; of your images, give their names"
                    : "");
        print_verb(out, run, "predict");
        fputc(' ', out);
        cli_print_word(out, run->setup->run.dataset);
    }
    fputc('\n', out);
}

void print_train_advice(FILE *out, const train_advice *run) {
    char file[128];
    fprintf(out, "\nNext:\n");
    if (run->setup->run.save != NULL)
        print_use(out, run);
    else if (run->repeatable) {
        fprintf(out, "  save the weights, for yoke evaluate or PyTorch:\n");
        print_again(out, run, "--save", free_name(run->setup->run.model, file));
    }
    /* A resumed run of all its steps takes none. */
    if (run->setup->run.trace == NULL && run->repeatable &&
        run->setup->run.checkpoint_dir == NULL) {
        fprintf(out, "  see every stage as a bar, in https://ui.perfetto.dev:\n");
        print_again(out, run, "--trace", "trace.json");
    }
    fprintf(out, strncmp(run->setup->run.dataset, "synthetic", 9) == 0
                     ? "  train on your own images (images:DIR, a folder for each class); all "
                       "options:\n    "
                     : "  all options:\n    ");
    cli_print_word(out, run->command[0]);
    fprintf(out, " help train\n");
}
