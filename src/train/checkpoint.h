/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints inside the library: the facts that they state, writing them and reading them back.
 * The public interface is yoke/checkpoint.h. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "parallel/parallel.h"
#include "train/description.h"
#include "train/train.h"
#include "yoke/checkpoint.h"

/* Facts: keys and values in __metadata__, in fixed memory. A resumed run compares those whose key
 * begins with "config." with its own. */
typedef struct yoke_fact {
    char key[40], value[YOKE_OPTION_BYTES];
} yoke_fact;

#define YOKE_FACTS 64
typedef struct yoke_facts {
    yoke_fact items[YOKE_FACTS];
    int count;
    const yoke_notes
        *description; /* of the weights; borrowed until the file is written; NULL: none */
} yoke_facts;

void yoke_facts_add(yoke_facts *facts, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void yoke_facts_add_real(yoke_facts *facts, const char *key, double value);
/* The counts of an engine's state, and its loss scale. */
void yoke_facts_add_state(yoke_facts *facts, const yoke_state *state);
/* What checkpoints state of these options, which is compared or is not. */
void yoke_facts_add_table(yoke_facts *facts, const yoke_option_table *table, const void *owner);
extern const yoke_option_table yoke_run_options; /* owner: a yoke_run */
/* ARGUMENT when `anyway` has a word that is no name behind `config.`; NULL: no words. */
yoke_status yoke_facts_check_names(const char *anyway);
/* ARGUMENT when a fact of `config.` differs whose name `anyway` does not list. */
yoke_status yoke_facts_compare(const yoke_facts *own, const yoke_safetensors *file,
                               const char *anyway);
bool yoke_facts_lists(const char *anyway, const char *name);

struct yoke_checkpoint {
    yoke_safetensors file;
    bool is_verified; /* every digest is right */
};

/* Opens a checkpoint whose header alone was verified: yoke_checkpoint_read first compares it with
 * the model, so that it never reads tensors which do not belong to the model. */
yoke_status yoke_checkpoint_open_header(yoke_checkpoint **checkpoint, const yoke_file_source *from);

#define YOKE_FORMAT_KEY "yoke.format" /* the note that makes a file a checkpoint */
/* DATA unless the file is a checkpoint and every digest is right. */
yoke_status yoke_checkpoint_verify(const yoke_safetensors *file);
/* Whether the file is an undamaged checkpoint of a format that this library does not read. */
bool yoke_checkpoint_is_other_format(const char *path);

#define YOKE_STEPS_LIMIT ((uint64_t)1 << 53)
/* A fact that is a number from 0 to `limit`; DATA when it is anything else. *number keeps its value
 * when the fact is absent. */
yoke_status yoke_checkpoint_number(const yoke_checkpoint *checkpoint, const char *key,
                                   uint64_t limit, uint64_t *number);
/* Whether `name` of a checkpoint's file is the optimizer's state. */
bool yoke_checkpoint_has_state(const yoke_safetensors *file, const char *name);

/* Writes the state that rank 0 has taken. It calls no device: any thread may call it. */
yoke_status yoke_checkpoint_write(const yoke_state *state, const yoke_facts *facts,
                                  const yoke_file_target *target);
/* Fills `state`, of an engine with `model`, from a checkpoint that fits it and whose digests are
 * right. */
yoke_status yoke_checkpoint_read(const yoke_checkpoint *checkpoint, const yoke_model *model,
                                 const yoke_facts *own, const char *anyway, yoke_state *state);

#endif
