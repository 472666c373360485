/* SPDX-License-Identifier: Apache-2.0 */
/* The module: translates Yoke's calls to MPI's. All decisions are in the library. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "distributed/mpi/module/module.h"

struct yoke_mpi_world {
    MPI_Comm communicators[YOKE_MPI_CHANNELS];
    MPI_Op least[2], greatest[2]; /* of float32, of float64; they keep a NaN */
};

_Static_assert(sizeof(MPI_Request) <= sizeof(yoke_mpi_request), "a request fits");

static yoke_mpi_request from_mpi(MPI_Request request) {
    yoke_mpi_request word = 0;
    memcpy(&word, &request, sizeof request);
    return word;
}

static MPI_Request to_mpi(yoke_mpi_request word) {
    MPI_Request request;
    memcpy(&request, &word, sizeof request);
    return request;
}

/* Texts. */

static void explain(int code, char *text, size_t bytes) {
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(code, whole, &length);
    snprintf(text, bytes, "%s", whole);
}

static int name(char *text, size_t bytes) {
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    int code = MPI_Get_library_version(whole, &length);
    snprintf(text, bytes, "%s", whole);
    return code;
}

/* Life. */

static int initialize(void) {
    int level;
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
}

static int is_serialized(int *yes) {
    int level = MPI_THREAD_SINGLE;
    int code = MPI_Query_thread(&level);
    *yes = level >= MPI_THREAD_SERIALIZED;
    return code;
}

static int place(int *rank, int *ranks) {
    int code = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return code == MPI_SUCCESS ? MPI_Comm_size(MPI_COMM_WORLD, ranks) : code;
}

static int open_channel(yoke_mpi_world *world, yoke_mpi_channel channel,
                        yoke_mpi_request *request) {
    MPI_Request posted = MPI_REQUEST_NULL;
    int code = MPI_Comm_idup(MPI_COMM_WORLD, &world->communicators[channel], &posted);
    *request = from_mpi(posted);
    return code;
}

/* An MPI_User_function that keeps left[i] where it beats right[i] or is NaN. */
#define KEEP(name, type, beats)                                                                    \
    static void name(void *from, void *to, int *count, MPI_Datatype *datatype) {                   \
        const type *left = from;                                                                   \
        type *right = to;                                                                          \
        (void)datatype;                                                                            \
        for (int i = 0; i < *count; i++) {                                                         \
            if (left[i] beats right[i] || left[i] != left[i]) right[i] = left[i];                  \
        }                                                                                          \
    }

KEEP(keep_least_float, float, <)
KEEP(keep_greatest_float, float, >)
KEEP(keep_least_double, double, <)
KEEP(keep_greatest_double, double, >)

static int complete(yoke_mpi_world *world) {
    const struct {
        MPI_User_function *function;
        MPI_Op *operation;
    } made[] = {{keep_least_float, &world->least[0]},
                {keep_least_double, &world->least[1]},
                {keep_greatest_float, &world->greatest[0]},
                {keep_greatest_double, &world->greatest[1]}};
    int code = MPI_SUCCESS;
    for (int i = 0; i < YOKE_MPI_CHANNELS && code == MPI_SUCCESS; i++)
        code = MPI_Comm_set_errhandler(world->communicators[i], MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof made / sizeof made[0] && code == MPI_SUCCESS; i++)
        code = MPI_Op_create(made[i].function, 1, made[i].operation);
    return code;
}

static void close_world(yoke_mpi_world *world) {
    for (int i = 0; i < 2; i++) {
        MPI_Op_free(&world->least[i]);
        MPI_Op_free(&world->greatest[i]);
    }
    for (int i = YOKE_MPI_CHANNELS - 1; i >= 0; i--)
        MPI_Comm_free(&world->communicators[i]);
}

/* Transfers. */

static MPI_Datatype type_of(yoke_element element) {
    switch (element) {
    case YOKE_ELEMENT_FLOAT32:
        return MPI_FLOAT;
    case YOKE_ELEMENT_BFLOAT16:
        return MPI_UINT16_T;
    case YOKE_ELEMENT_INT64:
        return MPI_INT64_T;
    case YOKE_ELEMENT_FLOAT64:
        return MPI_DOUBLE;
    case YOKE_ELEMENT_INT32: /* process groups refuse them */
    case YOKE_ELEMENT_UINT8:
        break;
    }
    return MPI_DATATYPE_NULL;
}

static MPI_Op operation_of(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer) {
    bool whole = transfer->element == YOKE_ELEMENT_INT64;
    int wide = transfer->element == YOKE_ELEMENT_FLOAT64;
    if (transfer->reduction == YOKE_MIN) return whole ? MPI_MIN : world->least[wide];
    if (transfer->reduction == YOKE_MAX) return whole ? MPI_MAX : world->greatest[wide];
    return MPI_SUM;
}

static int post_to(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer,
                   MPI_Request *request) {
    const void *from = transfer->from != NULL ? transfer->from : MPI_IN_PLACE;
    void *to = transfer->to;
    int count = (int)transfer->count, root = transfer->root;
    MPI_Datatype type = type_of(transfer->element);
    MPI_Op operation = operation_of(world, transfer);
    MPI_Comm ranks = world->communicators[transfer->channel];
    switch (transfer->collective) {
    case YOKE_MPI_BROADCAST:
        return MPI_Ibcast(to, count, type, root, ranks, request);
    case YOKE_MPI_REDUCE:
        return MPI_Ireduce(from, to, count, type, operation, root, ranks, request);
    case YOKE_MPI_ALL_REDUCE:
        return MPI_Iallreduce(from, to, count, type, operation, ranks, request);
    case YOKE_MPI_GATHER:
        return MPI_Igather(from, count, type, to, count, type, root, ranks, request);
    case YOKE_MPI_ALL_GATHER:
        return MPI_Iallgather(from, count, type, to, count, type, ranks, request);
    case YOKE_MPI_REDUCE_SCATTER:
        return MPI_Ireduce_scatter_block(from, to, count, type, operation, ranks, request);
    case YOKE_MPI_SCATTER:
        return MPI_Iscatter(transfer->from, count, type, to, count, type, root, ranks, request);
    case YOKE_MPI_ALL_TO_ALL:
        return MPI_Ialltoall(from, count, type, to, count, type, ranks, request);
    }
    return MPI_ERR_ARG;
}

static int post(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer,
                yoke_mpi_request *request) {
    MPI_Request posted = MPI_REQUEST_NULL;
    int code = transfer->count > 0 ? post_to(world, transfer, &posted) : MPI_SUCCESS;
    *request = from_mpi(posted);
    return code;
}

static int test(yoke_mpi_request *request, int *over) {
    MPI_Request posted = to_mpi(*request);
    int code = MPI_Test(&posted, over, MPI_STATUS_IGNORE);
    *request = from_mpi(posted);
    return code;
}

#ifdef OPEN_MPI
#define IS_OPEN_MPI true
#else
#define IS_OPEN_MPI false
#endif

__attribute__((visibility("default"))) extern const yoke_mpi_calls yoke_mpi_module;
const yoke_mpi_calls yoke_mpi_module = {.version = YOKE_MPI_VERSION,
                                        .bytes = sizeof yoke_mpi_module,
                                        .world_bytes = sizeof(yoke_mpi_world),
                                        .open_mpi = IS_OPEN_MPI,
                                        .explain = explain,
                                        .name = name,
                                        .is_finalized = MPI_Finalized,
                                        .is_initialized = MPI_Initialized,
                                        .initialize = initialize,
                                        .is_serialized = is_serialized,
                                        .finalize = MPI_Finalize,
                                        .place = place,
                                        .open = open_channel,
                                        .complete = complete,
                                        .close = close_world,
                                        .post = post,
                                        .test = test};
