/* SPDX-License-Identifier: Apache-2.0 */
/* What a model says of one row: its most probable classes, or its values. */
#include "cli/predict_print.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    int index;
    double probability;
} candidate;

/* The more probable first; of equal ones the earlier class. */
static int by_probability(const void *left, const void *right) {
    const candidate *a = left, *b = right;
    if (a->probability > b->probability || a->probability < b->probability)
        return a->probability > b->probability ? -1 : 1;
    return a->index - b->index;
}

/* Softmax in double; all[classes]. */
static void rank_classes(const float *outputs, int classes, candidate *all) {
    double largest = -INFINITY, sum = 0;
    for (int i = 0; i < classes; i++)
        largest = fmax(largest, (double)outputs[i]);
    for (int i = 0; i < classes; i++) {
        all[i] = (candidate){i, exp((double)outputs[i] - largest)};
        sum += all[i].probability;
    }
    for (int i = 0; i < classes; i++)
        all[i].probability /= sum;
    qsort(all, (size_t)classes, sizeof *all, by_probability);
}

void predict_print_begin(predict_printer *printer, const char *weights) {
    bool classifies = printer->of->info.classes > 0;
    if (printer->format == PREDICT_CSV)
        printf("%s\n", classifies ? "name,rank,class,index,probability" : "name,output,value");
    if (printer->format != PREDICT_JSON) return;
    yoke_json_begin(&printer->json);
    yoke_json_open(&printer->json, NULL, '{');
    yoke_json_text(&printer->json, "weights", weights);
    yoke_json_text(&printer->json, "model", printer->of->info.model);
    yoke_json_open(&printer->json, "predictions", '[');
}

yoke_status predict_print_end(predict_printer *printer) {
    if (printer->format != PREDICT_JSON) return YOKE_OK;
    yoke_json_close(&printer->json, ']');
    yoke_json_close(&printer->json, '}');
    return cli_print_json(&printer->json, stdout);
}

/* RFC 4180: quotes around what has a comma, a quote or a line break, and quotes doubled. */
static void print_field(const char *text) {
    if (strpbrk(text, ",\"\r\n") == NULL) {
        fputs(text, stdout);
        return;
    }
    putchar('"');
    for (; *text != '\0'; text++) {
        if (*text == '"') putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_real(double value) {
    char text[32];
    fputs(yoke_text_of_real(value, text, sizeof text), stdout);
}

/* Classes. */

static void csv_classes(const predict_printer *printer, const char *name, const candidate *all) {
    for (int i = 0; i < printer->top; i++) {
        char text[16];
        print_field(name);
        printf(",%d,", i + 1);
        print_field(trained_class(printer->of, all[i].index, text));
        printf(",%d,", all[i].index);
        print_real(all[i].probability);
        printf("\n");
    }
}

static void json_class(predict_printer *printer, const candidate *one) {
    char text[16];
    yoke_json_text(&printer->json, "class", trained_class(printer->of, one->index, text));
    yoke_json_integer(&printer->json, "index", one->index);
    yoke_json_real(&printer->json, "probability", one->probability);
}

static void json_classes(predict_printer *printer, const candidate *all) {
    json_class(printer, &all[0]);
    if (printer->top == 1) return;
    yoke_json_open(&printer->json, "top", '[');
    for (int i = 0; i < printer->top; i++) {
        yoke_json_open(&printer->json, NULL, '{');
        json_class(printer, &all[i]);
        yoke_json_close(&printer->json, '}');
    }
    yoke_json_close(&printer->json, ']');
}

static void text_classes(const predict_printer *printer, const candidate *all) {
    for (int i = 0; i < printer->top; i++) {
        char text[16];
        fputs("  ", stdout);
        cli_print_text(stdout, trained_class(printer->of, all[i].index, text), 0);
        printf(" %.2f %%", 100 * all[i].probability);
    }
}

/* Values. */

/* What BCE learns is a probability, of which the model computes the logit. */
static double value_of(const predict_printer *printer, float output) {
    const yoke_loss_options *loss = printer->of->info.loss;
    bool logit = printer->of->described && loss != NULL && loss->kind == YOKE_LOSS_BCE;
    return logit ? 1 / (1 + exp(-(double)output)) : (double)output;
}

static void print_values(predict_printer *printer, const char *name, const float *outputs) {
    yoke_json *json = &printer->json;
    if (printer->format == PREDICT_JSON) yoke_json_open(json, "outputs", '[');
    for (int i = 0; i < printer->of->info.target_count; i++) {
        double value = value_of(printer, outputs[i]);
        if (printer->format == PREDICT_JSON) {
            yoke_json_real(json, NULL, value);
        } else if (printer->format == PREDICT_CSV) {
            print_field(name);
            printf(",%d,", i);
            print_real(value);
            printf("\n");
        } else {
            printf("  %.6g", value);
        }
    }
    if (printer->format == PREDICT_JSON) yoke_json_close(json, ']');
}

static yoke_status print_classes(predict_printer *printer, const char *name, const float *outputs) {
    int classes = printer->of->info.classes;
    candidate *all = malloc((size_t)classes * sizeof *all);
    if (all == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for %d classes", classes);
    rank_classes(outputs, classes, all);
    if (printer->format == PREDICT_CSV)
        csv_classes(printer, name, all);
    else if (printer->format == PREDICT_JSON)
        json_classes(printer, all);
    else
        text_classes(printer, all);
    free(all);
    return YOKE_OK;
}

yoke_status predict_print_row(predict_printer *printer, const char *name, const float *outputs) {
    bool json = printer->format == PREDICT_JSON, text = printer->format == PREDICT_TEXT;
    yoke_status status = YOKE_OK;
    if (json) yoke_json_open(&printer->json, NULL, '{');
    if (json) yoke_json_text(&printer->json, "name", name);
    if (text) cli_print_text(stdout, name, 0);
    if (printer->of->info.classes > 0)
        status = print_classes(printer, name, outputs);
    else
        print_values(printer, name, outputs);
    if (text) printf("\n");
    if (json) yoke_json_close(&printer->json, '}');
    return status;
}
