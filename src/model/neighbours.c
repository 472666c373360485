/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes beside a value. */
#include "model/program.h"

int yoke_writing_node(const yoke_model *model, int value) {
    for (int i = 0; i < model->node_count; i++)
        if (model->nodes[i].output == value) return i;
    return YOKE_NONE;
}

int yoke_reading_node(const yoke_model *model, int value) {
    int reader = YOKE_NONE, readers = 0;
    for (int i = 0; i < model->node_count; i++)
        for (int k = 0; k < model->nodes[i].input_count; k++)
            if (model->nodes[i].inputs[k] == value) reader = i, readers++;
    return readers == 1 ? reader : YOKE_NONE;
}
