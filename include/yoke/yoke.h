/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Every public header but bench.h.
 *
 * @mainpage Yoke
 *
 * Data-parallel training on all the devices of one machine from one process.
 *
 * - trainer.h: training from a dataset to a checkpoint with one call; host_parts.h: loss and
 * metrics of the host program for it; lr_find.h: which learning rate to train with
 * - checkpoint.h: a run that goes on bit for bit
 * - data_parallel.h: the engine; stages.h: the stages of a step by hand
 * - model.h, optimizer.h, dataset.h: what it trains, how, and on what; transformer.h: layers of
 *   sequences; preset.h: models by name
 * - weights.h, evaluation.h: what it has learned
 * - device.h: the devices; distributed.h: several processes
 * - verify.h: training in float64 to compare with; files of tensors
 * - trace.h: when each stage ran; status.h: errors; bench.h: kernel time
 *
 * Every call that returns a yoke_status answers NULL with ARGUMENT, where it does not say what NULL
 * means. A call that returns a value directly answers NULL with 0, NULL, "", false or -1. `destroy`
 * and `close` accept NULL.
 *
 * Undefined, since no call can see it: a pointer to an object that was destroyed, and so destroying
 * it twice; destroying an object before those that use it (`must outlive`) or while a call on it
 * runs. A forked child has none of its parent's threads: there engines, loaders, trainers and
 * process groups return ARGUMENT, and destroying them ends nothing that the parent uses.
 *
 * What a call returns through an out-parameter belongs to the caller; what it returns directly is
 * borrowed.
 *
 * Callbacks must not throw: a C++ exception that leaves a callback terminates the program.
 *
 * Option structs begin with `struct_size`, so that a program and a library of different ages work
 * together. Each has an INIT macro with the defaults:
 *
 *     yoke_optimizer_options adamw = YOKE_ADAMW_OPTIONS_INIT;
 *     adamw.learning_rate = 3e-4;
 *
 * Without the macro, set `struct_size` and leave the rest zero: 0 is the default where 0 has no
 * meaning of its own (0 threads, 0 bytes), and 0 where it has one (a learning rate). Calls copy the
 * option structs; the documentation of each struct says which objects it refers to must live on.
 */
#ifndef YOKE_YOKE_H
#define YOKE_YOKE_H

#include "yoke/checkpoint.h"
#include "yoke/data_parallel.h"
#include "yoke/dataset.h"
#include "yoke/device.h"
#include "yoke/distributed.h"
#include "yoke/evaluation.h"
#include "yoke/host_parts.h"
#include "yoke/lr_find.h"
#include "yoke/model.h"
#include "yoke/optimizer.h"
#include "yoke/preset.h"
#include "yoke/stages.h"
#include "yoke/status.h"
#include "yoke/trace.h"
#include "yoke/trainer.h"
#include "yoke/transformer.h"
#include "yoke/verify.h"
#include "yoke/weights.h"

#endif
