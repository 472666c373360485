/* All that passes between Yoke and an MPI. The module libyoke_mpi.so, built with the MPI that is
 * there, exports one table of these calls; it knows nothing else of Yoke, and Yoke nothing of any
 * MPI.
 */
#ifndef DISTRIBUTED_MPI_MPI_H
#define DISTRIBUTED_MPI_MPI_H

#include "yoke/distributed.h"

#define YOKE_MPI_FILE "libyoke_mpi.so"
#define YOKE_MPI_SYMBOL "yoke_mpi_module"
#define YOKE_MPI_VERSION 1 /* grows when anything below changes */

/* What a group has of MPI: two communicators and its operations. The module's own. */
typedef struct yoke_mpi_world yoke_mpi_world;

/* A number in some MPIs, an address in others. */
typedef uintptr_t yoke_mpi_request;

/* Ranks agree on one communicator and move data on the other. */
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
    YOKE_MPI_SCATTER
} yoke_mpi_collective;

typedef struct yoke_mpi_transfer {
    yoke_mpi_collective collective;
    yoke_mpi_channel channel;
    const void *from;         /* NULL: in place */
    void *to;                 /* NULL: nothing comes here */
    size_t count;             /* of elements; of one rank's part where ranks have parts */
    yoke_element element;     /* bfloat16 only moves */
    yoke_reduction reduction; /* not MEAN; a minimum and a maximum of float32 keep a NaN */
    int root;                 /* where there is one */
} yoke_mpi_transfer;

/* Functions that answer an int answer MPI's codes; 0 is success. */
typedef struct yoke_mpi_calls {
    uint32_t version, bytes; /* YOKE_MPI_VERSION and the size of this */
    size_t world_bytes;      /* of a yoke_mpi_world, which begins zeroed */
    bool open_mpi;           /* built with Open MPI's headers, or with others */
    void (*explain)(int answer, char *text, size_t bytes);
    int (*name)(char *text, size_t bytes); /* of the MPI that is loaded, at any time */

    int (*is_finalized)(int *yes);
    int (*is_initialized)(int *yes);
    int (*initialize)(void);
    int (*is_serialized)(int *yes); /* whether threads may call it one at a time */
    int (*finalize)(void);
    int (*place)(int *rank, int *ranks);

    /* Each channel is opened by a request; after both the world is completed. */
    int (*open)(yoke_mpi_world *world, yoke_mpi_channel channel, yoke_mpi_request *request);
    int (*complete)(yoke_mpi_world *world);
    void (*close)(yoke_mpi_world *world);

    /* Non-blocking; a request of no elements is over at once. */
    int (*post)(const yoke_mpi_world *world, const yoke_mpi_transfer *transfer,
                yoke_mpi_request *request);
    int (*test)(yoke_mpi_request *request, int *over);
} yoke_mpi_calls;

#endif
