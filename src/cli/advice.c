/* Commands after a run. Words are quoted for a shell where they need it. */
#include "advice.h"

#include <string.h>

/* Characters that mean themselves in every shell. */
static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                            "_-+=:,./@%";

static void print_word(FILE *out, const char *word) {
    size_t length = strlen(word);
    if (length > 0 && strspn(word, plain) == length) {
        fputs(word, out);
        return;
    }
    fputc('\'', out);
    for (; *word != '\0'; word++)
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    fputc('\'', out);
}

/* The run once more, with another option. */
static void print_again(FILE *out, const train_advice *run, const char *option, const char *name,
                        const char *ending) {
    fprintf(out, "    ");
    for (int i = 0; run->command[i] != NULL; i++) {
        print_word(out, run->command[i]);
        fputc(' ', out);
    }
    fprintf(out, "%s ", option);
    print_word(out, name);
    fprintf(out, "%s\n", ending);
}

static void print_evaluate(FILE *out, const train_advice *run) {
    fprintf(out, "  measure the saved weights again:\n    ");
    print_word(out, run->command[0]);
    fprintf(out, " evaluate --init ");
    print_word(out, run->save);
    fprintf(out, " --model %s --dataset ", run->model);
    print_word(out, run->dataset);
    fputc('\n', out);
}

void print_train_advice(FILE *out, const train_advice *run) {
    fprintf(out, "\nNext:\n");
    if (run->save != NULL)
        print_evaluate(out, run);
    else if (run->repeatable) {
        fprintf(out, "  keep the weights, for yoke evaluate or PyTorch:\n");
        print_again(out, run, "--save", run->model, ".safetensors");
    }
    if (run->trace == NULL && run->repeatable) {
        fprintf(out, "  see every stage as a bar, in https://ui.perfetto.dev:\n");
        print_again(out, run, "--trace", "trace", ".json");
    }
    fprintf(out, "  train on pictures of your own (cifar10:DIR, mnist:DIR) and more:\n    ");
    print_word(out, run->command[0]);
    fprintf(out, " help train\n");
}
