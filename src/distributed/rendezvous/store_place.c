/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks find the store: those of one machine in a private folder, whatever port the
 * launcher names, because every local user can connect to a port. */
#include "distributed/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "distributed/store/meeting.h"
#include "distributed/store/proof.h"

/* Above the ports of services, below the ports that the kernel assigns. */
#define FIRST_PORT 20000
#define PORTS 12000

static uint64_t hash_text(const char *text) {
    uint8_t digest[YOKE_DIGEST_BYTES];
    uint64_t word = 0;
    yoke_name_digest(digest, text);
    for (int i = 0; i < 8; i++)
        word = word << 8 | digest[i];
    return word;
}

static void write_tcp(yoke_store_place *place, const char *host, int port) {
    bool six = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(place->address, sizeof place->address, "tcp://%s%s%s:%d", six ? "[" : "", host,
             six ? "]" : "", port);
}

static yoke_status choose_port(yoke_store_place *place, const yoke_rank_info *rank) {
    if (rank->run_id[0] == '\0')
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank %d of %d has the store's host, %s, but neither port nor run id: set MASTER_PORT "
            "to a free port there",
            rank->rank, rank->world, rank->address);
    write_tcp(place, rank->address, FIRST_PORT + (int)(hash_text(rank->run_id) % PORTS));
    return YOKE_OK;
}

yoke_status yoke_store_place_choose(yoke_store_place *place,
                                    const yoke_process_group_options *options) {
    const yoke_rank_info *rank = options->rank;
    bool one_machine = rank->local_world == rank->world;
    memset(place, 0, sizeof *place);
    memcpy(place->run_id, rank->run_id, sizeof place->run_id);
    if (options->store != NULL) {
        if (strlen(options->store) >= sizeof place->address)
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "the store's address has %zu bytes: at most %zu are allowed",
                        strlen(options->store), sizeof place->address - 1);
        strcpy(place->address, options->store);
        return YOKE_OK;
    }
    if (rank->world == 1) {
        strcpy(place->address, YOKE_STORE_ALONE);
        return YOKE_OK;
    }
    if (strstr(rank->address, "://") != NULL) { /* the launcher chose a whole address */
        strcpy(place->address, rank->address);
        return YOKE_OK;
    }
    /* A token keeps strangers from a port, for ranks that share no folder. */
    bool by_port = options->token != NULL && rank->address[0] != '\0' && rank->port > 0;
    if (one_machine && !by_port) {
        /* The name leaves out the address: ranks of one machine may call it by several. */
        char text[96], name[YOKE_MEETING_NAME_BYTES];
        /* mpiexec without a job id: only the ranks of this run have it as their parent. */
        if (rank->run_id[0] != '\0')
            snprintf(place->run_id, sizeof place->run_id, "%s", rank->run_id);
        else if (rank->port > 0)
            snprintf(place->run_id, sizeof place->run_id, "port-%d", rank->port);
        else
            snprintf(place->run_id, sizeof place->run_id, "parent-%ld", (long)getppid());
        snprintf(text, sizeof text, "%s:%d", place->run_id, rank->port);
        yoke_meeting_name(name, hash_text(text));
        snprintf(place->address, sizeof place->address, YOKE_MEETING "%s", name);
        return YOKE_OK;
    }
    if (rank->address[0] == '\0')
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank %d of %d runs on one machine of several, but has no address of rank 0: set "
            "MASTER_ADDR and MASTER_PORT",
            rank->rank, rank->world);
    if (rank->port == 0) return choose_port(place, rank);
    write_tcp(place, rank->address, rank->port);
    return YOKE_OK;
}
