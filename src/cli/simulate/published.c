/* SPDX-License-Identifier: Apache-2.0 */
/* The table of published figures, and profiles computed from them. */
#include "cli/simulate/published.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

/* Means over a run on drawn images: "train.total_ips" of the summary of each log, in the folders
 * [N x] H100_80GB_SXM5_v1, A100_80GB_SXM4_v1, LambdaCloud_V100_16GB_v1, 4090_v1 and 3090_v1 at
 * commit aa5addb, in PyTorch_resnet50_AMP. Two RTX 3090 were joined by NVLink, two RTX 4090 by
 * PCIe 4.0 (lambdalabs.com/blog/nvidia-rtx-4090-vs-rtx-3090-deep-learning-benchmark). */
#define LAMBDA "github.com/lambdal/deeplearning-benchmark, pytorch/results"
/* "Training performance results", and the batch of configs.yml; images of ImageNet, channels last
 * where the precision is mixed. */
#define NVIDIA "github.com/NVIDIA/DeepLearningExamples, PyTorch resnet50v1.5"

#define MIXED "float16 mixed"

static const published table[] = {
    {"h100:resnet50", "NVIDIA H100 80GB HBM3", MIXED, 1280, 2615.52, 8, 20722.84, "nvlink4", 3350,
     LAMBDA},
    {"a100:resnet50", "NVIDIA A100-SXM4-80GB", MIXED, 1280, 1582.19, 8, 11437.81, "nvlink3", 2039,
     LAMBDA},
    {"v100:resnet50", "Tesla V100-SXM2-16GB", MIXED, 256, 832.67, 8, 6166.88, "nvlink2", 900,
     LAMBDA},
    {"rtx4090:resnet50", "NVIDIA GeForce RTX 4090", MIXED, 448, 1301.15, 2, 2467.75, "pcie4", 1008,
     LAMBDA},
    {"rtx3090:resnet50", "NVIDIA GeForce RTX 3090", MIXED, 448, 905.05, 2, 1751.33, "56.25,3", 936,
     LAMBDA},
    {"dgx-a100:resnet50", "NVIDIA A100-SXM4-80GB", MIXED, 256, 2470, 8, 16621, "nvlink3", 2039,
     NVIDIA},
    {"dgx-a100-tf32:resnet50", "NVIDIA A100-SXM4-80GB", "tf32", 256, 938, 8, 7248, "nvlink3", 2039,
     NVIDIA},
    {"dgx-1:resnet50", "Tesla V100-SXM2-16GB", MIXED, 256, 1200, 8, 8322, "nvlink2", 900, NVIDIA},
    {"dgx-1-float32:resnet50", "Tesla V100-SXM2-16GB", "float32", 112, 367, 8, 2855, "nvlink2", 900,
     NVIDIA},
};
#define COUNT (int)(sizeof table / sizeof *table)

#define CLASSES 1000
#define DDP_BUCKET_BYTES ((size_t)25 << 20)
/* SGD with momentum reads gradient, weight and momentum, and writes the latter two; the loss reads
 * outputs and writes their gradients. */
#define UPDATE_PASSES 5
#define LOSS_PASSES 2

const published *published_at(int index) {
    return index < COUNT ? &table[index] : NULL;
}

const published *published_find(const char *name) {
    for (int i = 0; i < COUNT; i++)
        if (strcmp(table[i].name, name) == 0) return &table[i];
    return NULL;
}

static yoke_status fill_bytes(yoke_profile *profile, const yoke_model_segment *segments,
                              int count) {
    profile->segments = calloc((size_t)count, sizeof *profile->segments);
    if (profile->segments == NULL) return cli_refuse(YOKE_ERROR_MEMORY, "no memory for a profile");
    profile->segment_count = count;
    for (int s = 0; s < count; s++)
        profile->segments[s].bytes = segments[s].bytes;
    return YOKE_OK;
}

static void fill_times(yoke_profile *profile, const published *figures,
                       const yoke_model_segment *segments) {
    double step_ms = 1e3 * figures->rows / figures->rows_per_second, all = 0;
    double output_bytes = (double)profile->output_bytes * profile->rows;
    profile->update_ns_per_byte = UPDATE_PASSES / figures->memory_bandwidth;
    profile->loss_ms = 1e-6 * LOSS_PASSES * output_bytes / figures->memory_bandwidth;
    double update_ms = 1e-6 * profile->update_ns_per_byte * (double)yoke_profile_bytes(profile);
    double rest_ms = step_ms - profile->loss_ms - update_ms;
    profile->forward_ms = rest_ms / 3;
    for (int s = 0; s < profile->segment_count; s++)
        all += segments[s].multiplications;
    for (int s = 0; s < profile->segment_count; s++)
        profile->segments[s].backward_ms = rest_ms * 2 / 3 * segments[s].multiplications / all;
}

static yoke_status estimate(yoke_profile *profile, const published *figures,
                            const yoke_model *model) {
    yoke_model_segment segments[64];
    int count = 0;
    yoke_status status = yoke_model_segments(model, DDP_BUCKET_BYTES, segments, 64, &count);
    if (status == YOKE_OK) status = fill_bytes(profile, segments, count);
    if (status != YOKE_OK) return status;
    yoke_shape input = yoke_model_input_shape(model);
    size_t pixels = (size_t)input.height * (size_t)input.width;
    profile->input_bytes = (size_t)input.channels * pixels * sizeof(float);
    profile->output_bytes = CLASSES * sizeof(float);
    profile->layers = yoke_model_layer_count(model);
    fill_times(profile, figures, segments);
    return YOKE_OK;
}

yoke_status published_profile(const published *figures, yoke_profile *profile) {
    yoke_model *model = NULL;
    const char *preset = strchr(figures->name, ':') + 1;
    *profile = (yoke_profile){.rows = figures->rows};
    snprintf(profile->model, sizeof profile->model, "%s", preset);
    snprintf(profile->device, sizeof profile->device, "%s", figures->device);
    snprintf(profile->precision, sizeof profile->precision, "%s", figures->precision);
    snprintf(profile->source, sizeof profile->source, "estimated from %g published images/s: %s",
             figures->rows_per_second, figures->source);
    yoke_status status =
        yoke_model_preset(&model, preset, (yoke_shape){3, 224, 224, false}, CLASSES, NULL);
    if (status == YOKE_OK) status = estimate(profile, figures, model);
    yoke_model_destroy(model);
    if (status != YOKE_OK) yoke_profile_clear(profile);
    return status;
}

void published_print(FILE *out) {
    fprintf(out, "%-22s %-13s %5s %8s %7s %8s %s\n", "profile", "precision", "rows", "images/s",
            "devices", "images/s", "link");
    for (const published *row = table; row < table + COUNT; row++)
        fprintf(out, "%-22s %-13s %5d %8.0f %7d %8.0f %-7s %s\n", row->name, row->precision,
                row->rows, row->rows_per_second, row->devices, row->all_per_second, row->link,
                strcmp(row->source, LAMBDA) == 0 ? "[1]" : "[2]");
    fprintf(out,
            "\nrows      of a step, on each device: images of 3 x 224 x 224\n"
            "images/s  published, of one device and of several in one machine\n"
            "[1] https://" LAMBDA "\n[2] https://" NVIDIA "\n"
            "Profiles are computed from the figure of one device. Several devices have a\n"
            "spread of %g, fitted on six of the nine rows: they are simulated 6 %% too slow\n"
            "to 10 %% too fast, with a median error of 3.9 %% (docs/simulate.md).\n",
            PUBLISHED_SPREAD);
}
