/* The module: Yoke's words for MPI's. Everything that thinks is in the library. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "distributed/mpi/mpi.h"

struct yoke_mpi_world {
    MPI_Comm communicators[YOKE_MPI_CHANNELS];
    MPI_Op least, greatest; /* of float32 */
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

/* Words. */

static void explain(int answer, char *text, size_t bytes) {
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length;
    MPI_Error_string(answer, whole, &length);
    snprintf(text, bytes, "%s", whole);
}

static int name(char *text, size_t bytes) {
    char whole[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length;
    int answer = MPI_Get_library_version(whole, &length);
    snprintf(text, bytes, "%s", whole);
    return answer;
}

/* Life. */

static int initialize(void) {
    int level;
    return MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
}

static int is_serialized(int *yes) {
    int level = MPI_THREAD_SINGLE;
    int answer = MPI_Query_thread(&level);
    *yes = level >= MPI_THREAD_SERIALIZED;
    return answer;
}

static int place(int *rank, int *ranks) {
    int answer = MPI_Comm_rank(MPI_COMM_WORLD, rank);
    return answer == MPI_SUCCESS ? MPI_Comm_size(MPI_COMM_WORLD, ranks) : answer;
}

static int open_channel(yoke_mpi_world *world, yoke_mpi_channel channel,
                        yoke_mpi_request *request) {
    MPI_Request posted = MPI_REQUEST_NULL;
    int answer = MPI_Comm_idup(MPI_COMM_WORLD, &world->communicators[channel], &posted);
    *request = from_mpi(posted);
    return answer;
}

static void keep_least(void *from, void *to, int *count, MPI_Datatype *type) {
    const float *left = from;
    float *right = to;
    (void)type;
    for (int i = 0; i < *count; i++) {
        if (left[i] < right[i] || left[i] != left[i]) right[i] = left[i];
    }
}

static void keep_greatest(void *from, void *to, int *count, MPI_Datatype *type) {
    const float *left = from;
    float *right = to;
    (void)type;
    for (int i = 0; i < *count; i++) {
        if (left[i] > right[i] || left[i] != left[i]) right[i] = left[i];
    }
}

static int complete(yoke_mpi_world *world) {
    int answer = MPI_SUCCESS;
    for (int i = 0; i < YOKE_MPI_CHANNELS && answer == MPI_SUCCESS; i++)
        answer = MPI_Comm_set_errhandler(world->communicators[i], MPI_ERRORS_RETURN);
    if (answer == MPI_SUCCESS) answer = MPI_Op_create(keep_least, 1, &world->least);
    return answer == MPI_SUCCESS ? MPI_Op_create(keep_greatest, 1, &world->greatest) : answer;
}

static void close_world(yoke_mpi_world *world) {
    MPI_Op_free(&world->least);
    MPI_Op_free(&world->greatest);
    for (int i = YOKE_MPI_CHANNELS - 1; i >= 0; i--)
        MPI_Comm_free(&world->communicators[i]);
}

/* Transfers. */

static MPI_Datatype type_of(yoke_element element) {
    return element == YOKE_ELEMENT_INT64     ? MPI_INT64_T
           : element == YOKE_ELEMENT_FLOAT32 ? MPI_FLOAT
                                             : MPI_UINT16_T;
}

static MPI_Op operation_of(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer) {
    bool whole = transfer->element == YOKE_ELEMENT_INT64;
    if (transfer->reduction == YOKE_MIN) return whole ? MPI_MIN : world->least;
    if (transfer->reduction == YOKE_MAX) return whole ? MPI_MAX : world->greatest;
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
    }
    return MPI_ERR_ARG;
}

static int post(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer,
                yoke_mpi_request *request) {
    MPI_Request posted = MPI_REQUEST_NULL;
    int answer = transfer->count > 0 ? post_to(world, transfer, &posted) : MPI_SUCCESS;
    *request = from_mpi(posted);
    return answer;
}

static int test(yoke_mpi_request *request, int *over) {
    MPI_Request posted = to_mpi(*request);
    int answer = MPI_Test(&posted, over, MPI_STATUS_IGNORE);
    *request = from_mpi(posted);
    return answer;
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
