/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Every public header but bench.h.
 *
 * @mainpage Yoke
 *
 * Data-parallel training on all the devices of one machine from one process.
 *
 * - net.h: the short road: a model that learns from arrays, predicts for several threads, and goes
 * to memory and back; array.h: views of arrays, dlpack.h: of DLPack's tensors
 * - trainer.h: training from a dataset to a checkpoint with one call; host_parts.h: loss and
 * metrics of the host program for it; lr_find.h: which learning rate to train with
 * - checkpoint.h: a run that goes on bit for bit
 * - data_parallel.h: the engine, data_parallel_options.h: its options; stages.h: the stages of a
 * step by hand; custom_exchange.h: sums of gradients by the host program
 * - model.h, optimizer.h, dataset.h: what it trains, how, and on what; transformer.h: layers of
 *   sequences; preset.h: models by name; onnx.h: models from files; host_operation.h: layers of the
 *   host program
 * - weights.h, evaluation.h: what it has learned; generator.h: texts that it continues,
 *   tokenizer.h: their tokens
 * - device.h: the devices; distributed.h: several processes
 * - verify.h: training in float64 to compare with; files of tensors
 * - allocator.h: memory from the host program; sink.h: where
 * files go that have no path
 * - cancellation.h: ending calls early
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
 * Without the macro, set `struct_size` and leave the rest zero: 0 is the default. Only where 0 has
 * a meaning of its own is the macro's value another one:
 *
 * - yoke_optimizer_options: kind, learning_rate, momentum, nesterov, weight_decay, beta1, beta2,
 *   epsilon, alpha
 * - yoke_parameter_group: learning_rate_scale
 * - yoke_lr_plateau: factor, patience, threshold
 * - yoke_trainer_options: lr_patience
 * - yoke_data_parallel_options: interpreter_us
 * - yoke_loss_options: ignore_index
 * - yoke_lr_find_options: smoothing
 * - yoke_batch_norm_options: epsilon, momentum
 * - yoke_layer_norm_options: epsilon
 * - yoke_group_norm_options: epsilon
 *
 * Calls copy the option structs; the documentation of each struct says which objects it refers to
 * must live on. Structs for results begin with `struct_size`, too, and have such a macro. A call
 * writes so many bytes: fields that the library does not know become zero. A struct_size that no
 * version can have, more than 64 bytes above the library's own, is refused with ARGUMENT, and
 * nothing is written.
 *
 * **Signals, threads and their settings.** The library installs no signal handler and changes none.
 * oneDNN's kernels on the CPU use the stack pointer as an ordinary register, so a handler that
 * interrupted one would write into the heap, an alternate stack or not. Therefore:
 *
 * - The library's own threads, OpenMP's among them, take no signal for life, except SIGSEGV,
 *   SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS, which a thread's own instructions cause.
 * - The calling thread takes none inside a call that computes on CPU devices: a step, a forward, an
 *   evaluation of one batch, the read or write of a tensor. What comes meanwhile waits. Its handler
 *   runs when the call returns: in yoke_trainer_run between two steps and while the run waits for
 *   rows; in create between two measurements. A call of DDP may wait for other ranks as long as its
 *   timeout. A program that must react at once, also to SIGTERM's default action, leaves one thread
 *   of its own that takes signals, as `yoke train` does (src/cli/stop_signals.c).
 * - Masks are exactly what they were when a call returns, also of OpenMP threads that the program
 *   started for itself.
 * - A callback on the calling thread (on_event, custom_loss, custom_metrics) has the program's own
 * mask and cores, and so do threads that it starts. Rows are read on loader threads; the job of
 *   yoke_parallel_apply and operations of the host program run on workers, one of which is the
 *   calling thread: their callbacks, and threads started there, have all
 *   signals blocked; loader threads also have a nice value higher by 5, and workers one core each.
 *   Reset with pthread_sigmask, setpriority and sched_setaffinity what a new thread should not
 *   inherit.
 *
 * What the C library does by signals that nobody can block is left to the program: while an engine
 * computes, no thread may call setuid, setgid, setgroups and their kin, nor pthread_cancel a thread
 * that is in a call; and memory that a call reads must not be under a handler of SIGSEGV or SIGBUS
 * (userfaultfd, a garbage collector's guard pages).
 *
 * **oneDNN** prints nothing: the first CPU device turns its verbose mode off for the whole process
 * (yoke_devices_note); a program that wants its lines calls dnnl_set_verbose(1) behind
 * yoke_devices_open. oneDNN 2.6 ends the process in places where an allocation of 4 KiB or more
 * fails; the library checks beforehand that there is room for what it knows.
 */
#ifndef YOKE_YOKE_H
#define YOKE_YOKE_H

#include "yoke/allocator.h"
#include "yoke/array.h"
#include "yoke/asynchronous.h"
#include "yoke/attention.h"
#include "yoke/cancellation.h"
#include "yoke/checkpoint.h"
#include "yoke/composed.h"
#include "yoke/convolution.h"
#include "yoke/custom_exchange.h"
#include "yoke/data_parallel.h"
#include "yoke/data_parallel_options.h"
#include "yoke/dataset.h"
#include "yoke/device.h"
#include "yoke/distributed.h"
#include "yoke/dlpack.h"
#include "yoke/elementary.h"
#include "yoke/evaluation.h"
#include "yoke/function.h"
#include "yoke/generator.h"
#include "yoke/host_operation.h"
#include "yoke/host_parts.h"
#include "yoke/host_rows.h"
#include "yoke/lengths.h"
#include "yoke/losses.h"
#include "yoke/lr_find.h"
#include "yoke/model.h"
#include "yoke/model_info.h"
#include "yoke/net.h"
#include "yoke/onnx.h"
#include "yoke/optimizer.h"
#include "yoke/preset.h"
#include "yoke/recurrent.h"
#include "yoke/sink.h"
#include "yoke/stages.h"
#include "yoke/status.h"
#include "yoke/tokenizer.h"
#include "yoke/trace.h"
#include "yoke/trainer.h"
#include "yoke/transformer.h"
#include "yoke/verify.h"
#include "yoke/volume.h"
#include "yoke/weights.h"

#endif
