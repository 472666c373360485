/* A model is a list of layers in topological order, each naming the values it reads. Building never
 * fails on the spot: the first error sticks and yoke_model_finish reports it once. */
#ifndef YOKE_MODEL_H
#define YOKE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct yoke_model yoke_model;

/* A value: what a layer writes and others read. Valid for the model that returned it only. */
typedef struct yoke_value {
    int index;
} yoke_value;

/* Shape of one row (sample) of a value: channels, height, width; a flat value has height = width =
 * 1 and `flat` set. */
typedef struct yoke_shape {
    int channels, height, width;
    bool flat;
} yoke_shape;

typedef struct yoke_conv2d_options {
    size_t struct_size;
    const char *name; /* prefix of parameter names, "layer1.0.conv1"; required */
    int out_channels; /* required */
    int kernel;       /* square; required */
    int stride;       /* 0: 1 */
    int padding;
    int groups; /* 0: 1 */
    bool bias;  /* off by default, as a batch norm usually follows */
    const char
        *shared_with;     /* name of an earlier layer whose parameters this one uses; NULL: own */
    bool kaiming_fan_out; /* init: torchvision's ResNet rule; off: nn.Conv2d's default */
} yoke_conv2d_options;

typedef struct yoke_linear_options {
    size_t struct_size;
    const char *name;
    int out_features;
    bool no_bias;
    const char *shared_with;
} yoke_linear_options;

typedef struct yoke_batch_norm_options {
    size_t struct_size;
    const char *name;
    double epsilon;  /* 0: 1e-5 */
    double momentum; /* 0: 0.1; running = (1 - momentum) * running + momentum * batch */
} yoke_batch_norm_options;

typedef struct yoke_pool_options {
    size_t struct_size;
    int kernel; /* required; 0 with average pooling: the whole image (global) */
    int stride; /* 0: kernel */
    int padding;
} yoke_pool_options;

typedef enum yoke_loss_kind { YOKE_LOSS_CROSS_ENTROPY, YOKE_LOSS_MSE } yoke_loss_kind;

typedef struct yoke_loss_options {
    size_t struct_size;
    yoke_loss_kind kind;
    double label_smoothing; /* cross-entropy: 0 <= x < 1, torch.nn.CrossEntropyLoss's meaning */
} yoke_loss_options;

/* The rows a model reads have this shape. */
YOKE_API yoke_status yoke_model_create(yoke_model **model, const char *name, yoke_shape input);
YOKE_API void yoke_model_destroy(yoke_model *model);

/* Layers. Each returns the value it writes; on a model in error it returns value -1 and does
 * nothing. Names and shapes of parameters are PyTorch's: NAME.weight [out, in / groups, k, k] or
 * [out, in], NAME.bias [out]; batch norm adds NAME.running_mean, NAME.running_var [channels] and
 * NAME.num_batches_tracked. */
YOKE_API yoke_value yoke_model_input(yoke_model *model);
YOKE_API yoke_value yoke_conv2d(yoke_model *model, yoke_value input,
                                const yoke_conv2d_options *options);
YOKE_API yoke_value yoke_linear(yoke_model *model, yoke_value input,
                                const yoke_linear_options *options);
YOKE_API yoke_value yoke_batch_norm(yoke_model *model, yoke_value input,
                                    const yoke_batch_norm_options *options);
YOKE_API yoke_value yoke_relu(yoke_model *model, yoke_value input);
YOKE_API yoke_value yoke_add(yoke_model *model, yoke_value left, yoke_value right);
YOKE_API yoke_value yoke_max_pool(yoke_model *model, yoke_value input,
                                  const yoke_pool_options *options);
/* Padding does not count in the average only where there is none: count_include_pad is PyTorch's.
 */
YOKE_API yoke_value yoke_average_pool(yoke_model *model, yoke_value input,
                                      const yoke_pool_options *options);
YOKE_API yoke_value yoke_global_average_pool(yoke_model *model, yoke_value input);
YOKE_API yoke_value yoke_flatten(yoke_model *model, yoke_value input);
/* 0 <= probability < 1. Masks are keyed by (seed, step, layer, row of the whole batch): they do not
 * depend on the number of devices. */
YOKE_API yoke_value yoke_dropout(yoke_model *model, yoke_value input, double probability);

/* Names the output and the loss, checks the whole and freezes the model. Reports the first error of
 * any earlier call. NULL loss: cross-entropy. */
YOKE_API yoke_status yoke_model_finish(yoke_model *model, yoke_value output,
                                       const yoke_loss_options *loss);

/* A model by name: mlp (784-1024-1024-10 for 1x28x28, 10 classes; any input), resnet18, resnet34,
 * resnet50 (torchvision's), the same with -cifar (3x3 stem, no max pool; kuangliu's), resnet20,
 * resnet32, resnet44, resnet56 (He et al. 2015, section 4.2, option B shortcuts). Unknown names:
 * ARGUMENT with the nearest one. */
YOKE_API yoke_status yoke_model_preset(yoke_model **model, const char *name, yoke_shape input,
                                       int classes, const yoke_loss_options *loss);
/* The i-th preset's name, NULL past the end. */
YOKE_API const char *yoke_model_preset_name(int index);

YOKE_API const char *yoke_model_name(const yoke_model *model);
YOKE_API yoke_shape yoke_model_input_shape(const yoke_model *model);
YOKE_API yoke_shape yoke_model_output_shape(const yoke_model *model);
/* Trainable scalars; a shared parameter counts once. */
YOKE_API size_t yoke_model_parameter_count(const yoke_model *model);

/* The table of tensors in state_dict order: parameters and buffers (running statistics). */
typedef struct yoke_tensor_info {
    size_t struct_size;
    const char *name; /* borrowed from the model */
    int ndim;
    int64_t shape[4];
    size_t count;   /* elements */
    bool trainable; /* parameter; otherwise a buffer */
    bool integer;   /* num_batches_tracked: int64 in files, one scalar */
} yoke_tensor_info;
YOKE_API int yoke_model_tensor_count(const yoke_model *model);
YOKE_API yoke_status yoke_model_tensor(const yoke_model *model, int index, yoke_tensor_info *info);

#ifdef __cplusplus
}
#endif

#endif
