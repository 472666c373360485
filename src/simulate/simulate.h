/* SPDX-License-Identifier: Apache-2.0 */
/* The door of simulate: how long a training step takes on devices that one does not have. A profile
 * says how long one device computes; modelled links (links/links.h) say how long transfers take;
 * the order of both is that of the engine. */
#ifndef SIMULATE_SIMULATE_H
#define SIMULATE_SIMULATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "links/links.h"
#include "trace/trace.h"

/* A part of backward, and the bucket of gradients that is complete at its end. */
typedef struct yoke_profile_segment {
    double backward_ms;
    size_t bytes;
} yoke_profile_segment;

#define YOKE_PROFILE_TEXT_BYTES 128

/* A step of one device. Its parts add up to the step: host, forward, loss, backward, update. */
typedef struct yoke_profile {
    char model[YOKE_PROFILE_TEXT_BYTES], device[YOKE_PROFILE_TEXT_BYTES];
    char precision[YOKE_PROFILE_TEXT_BYTES];
    char source[YOKE_PROFILE_TEXT_BYTES]; /* who measured it, and how */
    int rows;                             /* of the step */
    int layers;                           /* that compute: calls of a forward in Python */
    size_t input_bytes, output_bytes;     /* of one row */
    double forward_ms, loss_ms;
    double host_ms;            /* of a step, in which the device computes nothing */
    double update_ns_per_byte; /* of gradients */
    yoke_profile_segment *segments;
    int segment_count;
} yoke_profile;

void yoke_profile_clear(yoke_profile *profile); /* takes a zeroed struct */
/* How many bytes of gradients a step has. */
size_t yoke_profile_bytes(const yoke_profile *profile);
double yoke_profile_step_ms(const yoke_profile *profile);
/* `status`: the step is too short or too long to simulate, or its rows have too many bytes; `name`
 * begins the text. */
#define YOKE_PROFILE_MOST_MS 1e9
#define YOKE_PROFILE_MOST_ROWS 1e9
#define YOKE_PROFILE_MOST_BYTES 1e15
yoke_status yoke_profile_check(const yoke_profile *profile, const char *name, yoke_status status);
/* The same device with other rows: forward, loss and backward take time in proportion to them,
 * update and host do not change. ARGUMENT: no such step can be simulated. */
yoke_status yoke_profile_set_rows(yoke_profile *profile, int rows);

/* DATA: the text is cut short, or no profile; what is wrong, and where. `name` begins the error's
 * text. After a failure the profile is clear. */
yoke_status yoke_profile_parse(yoke_profile *profile, const char *name, const char *text,
                               size_t bytes);
yoke_status yoke_profile_read(yoke_profile *profile, const char *path);
/* The file is complete, or it is not there. IO. */
yoke_status yoke_profile_write(const yoke_profile *profile, const char *path);

#define YOKE_SIMULATED_DEVICES 4096

typedef struct yoke_topology {
    yoke_link link;
    int per_node;  /* devices of a node; 0: all in one */
    yoke_link nic; /* of each node; bytes_per_ns 0: none, so one node only */
    /* For dp-python: microseconds for which a thread holds the interpreter's lock to call a layer,
     * and for which the root rebuilds a layer of a replica. */
    double interpreter_us;
    double handover_us; /* for which nobody holds the lock before a thread that waited gets it */
    double thread_us;   /* to start a thread for a replica, and to join it */
    /* Forward and backward take this device so many times as long; factor 0: none does. */
    int straggler;
    double straggler_factor;
    double spread;     /* standard deviation of the time that devices compute, by its mean: a
                          synchronous step waits for the slowest one. 0: all are alike */
    int max_staleness; /* of dp-async: no push is staler; 0: no bound */
} yoke_topology;

/* A layer's share of the time between two holders in `yoke train --schedule python`: 3.4 to 6.4 us
 * on two cores; and threads in PyTorch, 46 to 50 us (docs/ddp.md). */
#define YOKE_HANDOVER_US 5.0
#define YOKE_THREAD_US 48.0

/* The enumerator, the name, the route of its buckets (dp-async has none), and whether it is ranks,
 * who may span nodes. */
#define YOKE_SIMULATED_TABLE(X)                                                                    \
    X(YOKE_SIMULATED_PYTHON, "dp-python", YOKE_ROUTE_CHAIN, false)                                 \
    X(YOKE_SIMULATED_CLASSIC, "dp-classic", YOKE_ROUTE_CHAIN, false)                               \
    X(YOKE_SIMULATED_NCCL, "dp-nccl", YOKE_ROUTE_CHAIN, false)                                     \
    X(YOKE_SIMULATED_OVERLAP, "dp-overlap", YOKE_ROUTE_CHAIN, false)                               \
    X(YOKE_SIMULATED_SHARDED, "dp-sharded", YOKE_ROUTE_RING, false)                                \
    X(YOKE_SIMULATED_ASYNC, "dp-async", YOKE_ROUTE_CHAIN, false)                                   \
    X(YOKE_SIMULATED_DDP_RING, "ddp-ring", YOKE_ROUTE_RING, true)                                  \
    X(YOKE_SIMULATED_DDP_TREE, "ddp-tree", YOKE_ROUTE_TREE, true)                                  \
    X(YOKE_SIMULATED_DDP_HIERARCHICAL, "ddp-hierarchical", YOKE_ROUTE_HIERARCHICAL, true)

typedef enum yoke_simulated_mode {
#define YOKE_SIMULATED_ENUMERATOR(name, text, route, ranks) name,
    YOKE_SIMULATED_TABLE(YOKE_SIMULATED_ENUMERATOR)
#undef YOKE_SIMULATED_ENUMERATOR
        YOKE_SIMULATED_MODES
} yoke_simulated_mode;

const char *yoke_simulated_name(yoke_simulated_mode mode);

#define YOKE_SIMULATED_LANES 4 /* the timeline shows the first devices; many are alike */

typedef struct yoke_simulation {
    yoke_simulated_mode mode;
    int devices, nodes;
    uint64_t step_ns;
    /* The root's part of step_ns, by the rule of trace/account.h. */
    uint64_t communicate_ns, wait_ns;
    uint64_t travel_ns; /* all transfers and collectives, one after the other as they run */
    uint64_t update_ns, loss_ns; /* on the root */
    uint64_t python_ns;          /* of the step: rebuilding replicas, and what the lock adds */
    double efficiency;           /* step of one device / step: each device keeps its rows */
    double mean_staleness; /* of dp-async: updates between the pull and the push of a device */
    uint64_t largest_staleness;
    yoke_link_bytes *links; /* [link_count]: of each device's link in the step */
    int link_count;         /* devices */
    /* In the order of lanes and time. Lane k < YOKE_SIMULATED_LANES is device k; lane
     * YOKE_SIMULATED_LANES + k is the link of device k, and its spans have the bytes that the link
     * carried. */
    yoke_span_info *spans;
    int span_count;
} yoke_simulation;

/* Whether the mode runs on so many devices; otherwise ARGUMENT and why not. */
yoke_status yoke_simulate_check(const yoke_topology *topology, yoke_simulated_mode mode,
                                int devices);
/* The step after the first: replicas are stale in dp-python, dp-classic and dp-nccl, and equal
 * elsewhere. In dp-async, the pushes of a steady state: a step has as many as there are devices. */
yoke_status yoke_simulate(yoke_simulation *simulation, const yoke_profile *profile,
                          const yoke_topology *topology, yoke_simulated_mode mode, int devices);
/* Where the time of the step goes: "62 % of the step waits for the root's link: ...; 38 %
 * computes". Of the profile and the topology that it was simulated with. */
#define YOKE_SIMULATION_TEXT_BYTES 512
const char *yoke_simulation_describe(const yoke_simulation *simulation, const yoke_profile *profile,
                                     const yoke_topology *topology,
                                     char text[YOKE_SIMULATION_TEXT_BYTES]);
void yoke_simulation_clear(yoke_simulation *simulation); /* takes a zeroed struct */

#endif
