/* SPDX-License-Identifier: Apache-2.0 */
/* Models by name: a family of models is one file of this folder, and presets.c has the list of
 * families; for this folder's files only. */
#ifndef MODEL_PRESETS_PRESET_H
#define MODEL_PRESETS_PRESET_H

#include "model/graph.h"

/* A number behind the preset's name: "mlp:width=256". */
typedef struct yoke_preset_option {
    const char *name; /* NULL ends the list */
    double otherwise; /* the default */
    double low, high; /* both allowed */
    bool real;        /* false: whole numbers */
} yoke_preset_option;

typedef struct yoke_preset yoke_preset;

/* What a family builds. */
typedef struct yoke_preset_request {
    yoke_model *model; /* has its first input and nothing else */
    const yoke_preset *preset;
    int classes;                              /* length of the output, at least 1 */
    double values[YOKE_PRESET_OPTIONS_LIMIT]; /* in the order of the preset's options */
    const char *text;                         /* of a preset that reads text; NULL: there is none */
} yoke_preset_request;

struct yoke_preset {
    const char *name;
    const char *summary; /* one line */
    /* Adds the layers and returns the output. It reports an error by yoke_builder_result. */
    yoke_value (*build)(const yoke_preset_request *request);
    const void *member; /* what the family's file knows of this preset; may be NULL */
    const yoke_preset_option *options; /* NULL: none */
    yoke_shape input;                  /* what the preset was published for */
    int classes;
    bool reads_numbers; /* also rows that are no images, whatever `input` says */
    bool reads_text;    /* what follows the colon are no options */
};

typedef struct yoke_preset_family {
    const yoke_preset *presets;
    int count;
} yoke_preset_family;

extern const yoke_preset_family yoke_mlp_family, yoke_resnet_family, yoke_vgg_family,
    yoke_mobilenet_family, yoke_densenet_family, yoke_efficientnet_family, yoke_convnext_family,
    yoke_gpt2_family, yoke_lstm_char_family, yoke_transformer_family, yoke_vit_family,
    yoke_layers_family, yoke_unet_family, yoke_airbench_family;

/* parts.c: a convolution by torchvision's initialisation, padded by half its kernel, and its batch
 * norm. */
typedef struct yoke_preset_conv {
    const char *conv, *norm; /* names of the two layers */
    int channels, kernel, stride;
    int groups;   /* 0: 1 */
    bool no_bias; /* of the convolution */
} yoke_preset_conv;
yoke_value yoke_preset_conv_norm(yoke_model *model, yoke_value input,
                                 const yoke_preset_conv *layer);
/* Parameter `index` of the latest layer; NULL once the model is in error. */
yoke_tensor *yoke_preset_parameter(yoke_model *model, int index);
/* The initial values of this parameter. */
void yoke_preset_fill(yoke_model *model, int index, yoke_fill fill);
/* torchvision's Conv2dNormActivation, without the activation: PREFIX.0, without bias, and PREFIX.1.
 */
yoke_value yoke_preset_numbered(yoke_model *model, yoke_value input, const char *prefix,
                                yoke_preset_conv layer);
/* std: of normal initial weights; 0: nn.Linear's rule. */
yoke_value yoke_preset_linear(yoke_model *model, yoke_value input, const char *name, int features,
                              double std);

/* preset_options.c: reads "width=256,dropout=0.1", which follows the colon; NULL: the defaults.
 * ARGUMENT: an option is unknown, given twice, or its value is out of range. */
yoke_status yoke_preset_options_read(const yoke_preset *preset, const char *text, double *values);

#endif
