/* SPDX-License-Identifier: Apache-2.0 */
/* The interface between Yoke and MPI. The module libyoke_mpi.so, built with this machine's MPI,
 * exports one table of these calls. It uses nothing else of Yoke, and Yoke nothing of MPI. */
#ifndef DISTRIBUTED_MPI_MODULE_H
#define DISTRIBUTED_MPI_MODULE_H

#include "yoke/distributed.h"

#define YOKE_MPI_FILE "libyoke_mpi.so"
#define YOKE_MPI_SYMBOL "yoke_mpi_module"
#define YOKE_MPI_VERSION 4 /* raise it with every change below or of yoke_element */

/* MPI's state of a group: two communicators and the operations. Only the module knows its fields.
 */
typedef struct yoke_mpi_world yoke_mpi_world;

/* MPI_Request is a number in some MPIs, a pointer in others. */
typedef uintptr_t yoke_mpi_request;

/* Ranks compare calls on one communicator and move data on the other. */
typedef enum yoke_mpi_channel {
    YOKE_MPI_AGREEMENT,
    YOKE_MPI_DATA,
    YOKE_MPI_CHANNELS
} yoke_mpi_channel;

typedef enum yoke_mpi_collective {
    YOKE_MPI_BROADCAST,
    YOKE_MPI_REDUCE,
    YOKE_MPI_ALL_REDUCE,
    YOKE_MPI_GATHER,
    YOKE_MPI_ALL_GATHER,
    YOKE_MPI_REDUCE_SCATTER,
    YOKE_MPI_SCATTER,
    YOKE_MPI_ALL_TO_ALL
} yoke_mpi_collective;

typedef struct yoke_mpi_transfer {
    yoke_mpi_collective collective;
    yoke_mpi_channel channel;
    const void *from;         /* NULL: in place */
    void *to;                 /* NULL: this rank receives nothing */
    size_t count;             /* of elements; where each rank has a part, of one part */
    yoke_element element;     /* no reductions of bfloat16 */
    yoke_reduction reduction; /* not MEAN; MIN and MAX of floats keep a NaN */
    int root;                 /* of the rooted collectives */
} yoke_mpi_transfer;

/* Functions that return int return MPI's codes; 0 is success. */
typedef struct yoke_mpi_calls {
    uint32_t version, bytes; /* YOKE_MPI_VERSION, and the size of this struct */
    size_t world_bytes;      /* of a yoke_mpi_world; the caller zeroes it */
    bool open_mpi;           /* the module was built with Open MPI's headers */
    void (*explain)(int code, char *text, size_t bytes);
    int (*name)(char *text, size_t bytes); /* of the loaded MPI; also before initialize */

    int (*is_finalized)(int *yes);
    int (*is_initialized)(int *yes);
    int (*initialize)(void);
    int (*is_serialized)(int *yes); /* several threads may call MPI, one at a time */
    int (*finalize)(void);
    int (*place)(int *rank, int *ranks);

    /* open posts a request for each channel; call complete when both are complete. */
    int (*open)(yoke_mpi_world *world, yoke_mpi_channel channel, yoke_mpi_request *request);
    int (*complete)(yoke_mpi_world *world);
    void (*close)(yoke_mpi_world *world);

    /* Non-blocking; a transfer of no elements is complete at once. */
    int (*post)(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer,
                yoke_mpi_request *request);
    int (*test)(yoke_mpi_request *request, int *over);
} yoke_mpi_calls;

#endif
