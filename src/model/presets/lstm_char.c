/* SPDX-License-Identifier: Apache-2.0 */
/* A language model of characters: an embedding, an LSTM, and a linear layer at each position. The
 * vocabulary is the classes of the rows. */
#include "model/presets/preset.h"
#include "yoke/recurrent.h"
#include "yoke/transformer.h"

enum { LAYERS, WIDTH, EMBEDDING, DROPOUT };

static const yoke_preset_option options[] = {
    [LAYERS] = {"layers", 1, 1, 16, false},
    [WIDTH] = {"width", 128, 1, 1 << 14, false},        /* of a state */
    [EMBEDDING] = {"embedding", 64, 1, 1 << 14, false}, /* features of a character */
    [DROPOUT] = {"dropout", 0, 0, 0.99, true},
    {0}};

static yoke_value build_lstm_char(const yoke_preset_request *request) {
    yoke_model *model = request->model;
    yoke_embedding_options tokens = YOKE_EMBEDDING_OPTIONS_INIT;
    yoke_recurrent_options lstm = YOKE_RECURRENT_OPTIONS_INIT;
    tokens.name = "embedding";
    tokens.count = request->classes;
    tokens.features = (int)request->values[EMBEDDING];
    lstm.name = "lstm";
    lstm.hidden = (int)request->values[WIDTH];
    lstm.layers = (int)request->values[LAYERS];
    lstm.dropout = request->values[DROPOUT];
    yoke_value value = yoke_embedding(model, yoke_model_input(model), &tokens);
    return yoke_preset_linear(model, yoke_lstm(model, value, &lstm), "head", request->classes, 0);
}

static const yoke_preset presets[] = {
    {.name = "lstm-char",
     .summary = "an LSTM over characters; reads text",
     .build = build_lstm_char,
     .options = options,
     .input = {.channels = 64, .height = 1, .width = 1, .flat = true},
     .classes = 65},
};
const yoke_preset_family yoke_lstm_char_family = {presets, sizeof presets / sizeof presets[0]};
