/* SPDX-License-Identifier: Apache-2.0 */
/* The inputs of a row beside its first: names, shapes, and where their values are. For this room
 * only. */
#ifndef DATA_ROW_INPUTS_H
#define DATA_ROW_INPUTS_H

#include "data/loader_slot.h"

/* Adds an input to a dataset whose rows are known. values: [stored rows, values of a row], borrowed
 * until the dataset closes; NULL: the row source writes them. The values become the dataset's if
 * `owned`, also after a failure. ARGUMENT: the name is missing or taken, the shape no shape, or
 * there is no room for one more input. */
yoke_status yoke_row_inputs_add(yoke_dataset *dataset, const yoke_row_input *input, bool owned);
/* Adds those of yoke_arrays and yoke_row_source. stored: whether they have values, or must not. */
yoke_status yoke_row_inputs_load(yoke_dataset *dataset, const yoke_row_input *given, int count,
                                 bool stored);
void yoke_row_inputs_close(yoke_dataset *dataset);

/* Values of a row of input `index`, counted from 0 behind the first one. */
size_t yoke_row_inputs_values(const yoke_dataset *dataset, int index);
/* Copies stored row `row` into place i of a slot. */
void yoke_row_inputs_copy(const yoke_dataset *dataset, size_t row, yoke_loader_slot *slot, int i);

/* Which of the dataset's inputs a batch brings, in the model's order. */
typedef struct yoke_input_order {
    int count;
    int inputs[YOKE_INPUTS_LIMIT]; /* indices into yoke_dataset.more */
} yoke_input_order;
/* The same of a model whose rows are shorter: their sizes are not compared. */
yoke_status yoke_input_order_find_shorter(yoke_input_order *order, const yoke_dataset *dataset,
                                          const yoke_model *model);
/* model NULL: all, in the dataset's order. ARGUMENT: the dataset lacks an input of the model, or
 * its rows have another size; the text names both. */
yoke_status yoke_input_order_find(yoke_input_order *order, const yoke_dataset *dataset,
                                  const yoke_model *model);

#endif
