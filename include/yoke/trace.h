/* When each stage ran and on which device: rows of a table, bars of a timeline. */
#ifndef YOKE_TRACE_H
#define YOKE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row a stage: enumerator, name in reports and timelines. */
#define YOKE_STAGE_TABLE(X)                                                                        \
    X(YOKE_STAGE_LOAD, "load")                                                                     \
    X(YOKE_STAGE_SCATTER, "scatter")                                                               \
    X(YOKE_STAGE_REPLICATE, "replicate")                                                           \
    X(YOKE_STAGE_FORWARD, "forward")                                                               \
    X(YOKE_STAGE_LOSS, "loss")                                                                     \
    X(YOKE_STAGE_BACKWARD, "backward")                                                             \
    X(YOKE_STAGE_REDUCE, "reduce")                                                                 \
    X(YOKE_STAGE_UPDATE, "update")                                                                 \
    X(YOKE_STAGE_EXCHANGE, "exchange")     /* reduce + update + publish in one pass */             \
    X(YOKE_STAGE_ALL_REDUCE, "all_reduce") /* between ranks, behind backward */                    \
    X(YOKE_STAGE_WAIT, "wait")             /* for what of it backward did not hide */              \
    X(YOKE_STAGE_GATHER, "gather")                                                                 \
    X(YOKE_STAGE_STEP, "step")                                                                     \
    X(YOKE_STAGE_EVALUATE, "evaluate")

typedef enum yoke_stage {
#define YOKE_STAGE_ENUMERATOR(name, text) name,
    YOKE_STAGE_TABLE(YOKE_STAGE_ENUMERATOR)
#undef YOKE_STAGE_ENUMERATOR
        YOKE_STAGE_COUNT
} yoke_stage;

typedef struct yoke_trace yoke_trace;

YOKE_API const char *yoke_stage_name(yoke_stage stage);

/* One stage over the steps still in the ring. */
typedef struct yoke_stage_summary {
    size_t struct_size;
    yoke_stage stage;
    size_t count;                /* steps in which it ran */
    double median_ms;            /* per step: the longest lane's sum */
    double share;                /* of the steps' total time */
    double bytes;                /* moved per step, all lanes; 0 for pure computation */
    double gigabytes_per_second; /* bytes / median, in 1e9 */
} yoke_stage_summary;

/* Fills up to `capacity` rows in YOKE_STAGE_TABLE's order, stages that never ran left out; the
 * number of rows is returned (0 also when memory is short). rows[0].struct_size is the size of a
 * row in the caller's eyes, 0: the library's. Call it, and the two below, while no stage is
 * running. */
YOKE_API int yoke_trace_summarize(const yoke_trace *trace, yoke_stage_summary *rows, int capacity);

/* Forgets what was recorded (after warm-up). */
YOKE_API void yoke_trace_reset(yoke_trace *trace);

/* Chrome trace JSON, opens in https://ui.perfetto.dev. IO names path and cause; the file is
 * complete or absent. */
YOKE_API yoke_status yoke_trace_write(const yoke_trace *trace, const char *path);

#ifdef __cplusplus
}
#endif

#endif
