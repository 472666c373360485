/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * When each stage ran and on which device: rows of a table, bars of a timeline.
 */
#ifndef YOKE_TRACE_H
#define YOKE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Every stage, one row each: enumerator, name in reports and timelines, what happens in it.
 *
 * @param X  A macro of three parameters; the table applies it to each row.
 */
#define YOKE_STAGE_TABLE(X)                                                                        \
    X(YOKE_STAGE_LOAD, "load", "the caller waits for the loader")                                  \
    X(YOKE_STAGE_SCATTER, "scatter", "each device gets its shard")                                 \
    X(YOKE_STAGE_REPLICATE, "replicate", "stale replicas get the root's weights")                  \
    X(YOKE_STAGE_PYTHON, "python",                                                                 \
      "Python starts threads, copies and calls layers; one at a time")                             \
    X(YOKE_STAGE_FORWARD, "forward", "replicas compute outputs")                                   \
    X(YOKE_STAGE_LOSS, "loss", "replicas, or the root, compute the loss")                          \
    X(YOKE_STAGE_BACKWARD, "backward", "replicas compute gradients")                               \
    X(YOKE_STAGE_REDUCE, "reduce", "the root sums the gradients")                                  \
    X(YOKE_STAGE_UPDATE, "update", "the optimizer changes the weights")                            \
    X(YOKE_STAGE_EXCHANGE, "exchange", "reduce, update and publish in one pass")                   \
    X(YOKE_STAGE_ALL_REDUCE, "all_reduce", "ranks sum gradients, behind backward")                 \
    X(YOKE_STAGE_WAIT, "wait", "a device or rank waits for another one, or for its link")          \
    X(YOKE_STAGE_GATHER, "gather", "the host gets loss, counts or outputs")                        \
    X(YOKE_STAGE_STEP, "step", "the whole of a training step")                                     \
    X(YOKE_STAGE_EVALUATE, "evaluate", "the whole of an evaluation")

/** The stages of a step, in the order of reports. */
typedef enum yoke_stage {
#define YOKE_STAGE_ENUMERATOR(name, text, what) name, /**< what */
    YOKE_STAGE_TABLE(YOKE_STAGE_ENUMERATOR)
#undef YOKE_STAGE_ENUMERATOR
        YOKE_STAGE_COUNT /**< The number of stages. */
} yoke_stage;

/** A ring of the last steps' spans; yoke_data_parallel_trace has an engine's. */
typedef struct yoke_trace yoke_trace;

/** The name of a stage.
 *
 * @param stage  A stage of YOKE_STAGE_TABLE.
 * @return "all_reduce", for example; static, never NULL.
 */
YOKE_API const char *yoke_stage_name(yoke_stage stage);

/** One stage over the steps that are still in the ring. At every instant a device is in one stage
 * or idle: where spans overlap, computation counts before communication, and communication before a
 * wait; of two of a kind, the one that began last. A time is that of the lane that spends longest
 * in the stage. */
typedef struct yoke_stage_summary {
    size_t struct_size; /**< sizeof(yoke_stage_summary). */
    yoke_stage stage;   /**< The stage. */
    size_t count;       /**< Steps in which it ran. */
    double median_ms;   /**< Over those steps. */
    double share;       /**< Its part of the time of all steps, long ones included; 0 to 1. */
    double bytes;       /**< Moved in a step by all lanes; 0 for pure computation. */
    double gigabytes_per_second; /**< 1e9 bytes a second, while the stage's spans last, behind
                                    other stages, too. 0: it moves none; it waits; an all-reduce on
                                    CPUs, whose bytes move beside its spans; with modelled links,
                                    they carry nothing in it. */
} yoke_stage_summary;

/** All zero but the size. */
#define YOKE_STAGE_SUMMARY_INIT                                                                    \
    { sizeof(yoke_stage_summary), YOKE_STAGE_LOAD, 0, 0, 0, 0, 0 }

/** Summarizes the recorded steps. Call it while no stage is running.
 *
 * @param trace     The trace. NULL: 0.
 * @param[out] rows The stages that ran, in YOKE_STAGE_TABLE's order. Set rows[0].struct_size to
 *                  the size of a row first; 0: the library's.
 * @param capacity  The number of rows there is space for; YOKE_STAGE_COUNT is enough.
 * @return The number of rows; 0 also when memory is short.
 */
YOKE_API int yoke_trace_summarize(const yoke_trace *trace, yoke_stage_summary *rows, int capacity);

/** One stage of one lane in one step. */
typedef struct yoke_span_info {
    size_t struct_size;  /**< sizeof(yoke_span_info). */
    int lane;            /**< The device's place in the engine; 0 is the root. */
    yoke_stage stage;    /**< The stage. */
    uint64_t step;       /**< Number of the step since the engine was created. */
    uint64_t begin_ns;   /**< By CLOCK_MONOTONIC. */
    uint64_t end_ns;     /**< By CLOCK_MONOTONIC. */
    uint64_t bytes;      /**< Moved by this lane; 0 for pure computation. */
    int bucket;          /**< The bucket of gradients; -1: none, or all of them. */
    yoke_stage awaits;   /**< YOKE_STAGE_WAIT: the stage of another lane or rank that this one
                            waits for, on `bucket`; YOKE_STAGE_COUNT: whatever another lane does, or
                            its own link. */
    uint64_t sent_bytes; /**< What this lane's modelled link carried until the span ended; 0: it has
                              no such link, or other spans of the step have its bytes. */
    uint64_t received_bytes; /**< Likewise. */
} yoke_span_info;

/** All zero but the size. */
#define YOKE_SPAN_INFO_INIT                                                                        \
    { sizeof(yoke_span_info), 0, YOKE_STAGE_LOAD, 0, 0, 0, 0, 0, YOKE_STAGE_LOAD, 0, 0 }

/** Copies the spans of the recorded steps, lane by lane, in the order in which they were recorded.
 * Steps of which the ring has lost a span are left out. Call it while no stage is running.
 *
 * @param trace      The trace; NULL has no spans.
 * @param[out] spans Set spans[0].struct_size to the size of a span first; 0: the library's. NULL
 *                   with capacity 0.
 * @param capacity   The number of spans there is space for.
 * @return The number of spans there are; the first `capacity` of them were copied.
 */
YOKE_API size_t yoke_trace_read(const yoke_trace *trace, yoke_span_info *spans, size_t capacity);

/** Likewise of the last `steps` steps alone, without going through the others, for a program that
 * looks at a run while it runs. A step counts from its STEP span on; what was recorded behind the
 * last one comes along. Call it while no stage is running; devices that queue may lack the last
 * step's stages.
 *
 * @param trace      The trace; NULL has no spans.
 * @param steps      How many steps; fewer are there at the begin.
 * @param[out] spans As for yoke_trace_read.
 * @param capacity   The number of spans there is space for.
 * @return As yoke_trace_read.
 */
YOKE_API size_t yoke_trace_read_last(const yoke_trace *trace, uint64_t steps, yoke_span_info *spans,
                                     size_t capacity);

/** Forgets what was recorded, after warm-up for example. Call it while no stage is running.
 *
 * @param trace  The trace. NULL: nothing happens.
 */
YOKE_API void yoke_trace_reset(yoke_trace *trace);

/** Writes a Chrome trace, which https://ui.perfetto.dev opens; docs/traces.md describes the file.
 * Call it while no stage is running.
 *
 * @param trace  The trace.
 * @param path   The file; it is complete, or it is not there.
 * @return IO: the text names the path and the cause.
 */
YOKE_API yoke_status yoke_trace_save(const yoke_trace *trace, const char *path);

#ifdef __cplusplus
}
#endif

#endif
