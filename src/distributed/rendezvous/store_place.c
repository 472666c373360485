/* Where the ranks find the store. No rank can know a free port before it binds it, but all can
 * compute a folder's name: so the ranks of one machine use a folder in /tmp, named after the run.
 */
#include "distributed/rendezvous/rendezvous.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "distributed/store/sha256.h"

/* Above the ports of services, below the ports that the kernel assigns. */
#define FIRST_PORT 20000
#define PORTS 12000

static uint64_t hash_text(const char *text) {
    yoke_sha256 hash;
    uint8_t digest[YOKE_SHA256_BYTES];
    uint64_t word = 0;
    yoke_sha256_begin(&hash);
    yoke_sha256_add(&hash, text, strlen(text));
    yoke_sha256_end(&hash, digest);
    for (int i = 0; i < 8; i++)
        word = word << 8 | digest[i];
    return word;
}

static void write_tcp(yoke_store_place *place, const char *host, int port) {
    bool six = strchr(host, ':') != NULL && host[0] != '[';
    snprintf(place->address, sizeof place->address, "tcp://%s%s%s:%d", six ? "[" : "", host,
             six ? "]" : "", port);
}

/* mpiexec without a job id: only the ranks of this run have it as their parent. */
static void name_run(yoke_store_place *place, const yoke_rank_info *rank) {
    if (rank->run_id[0] != '\0')
        snprintf(place->run_id, sizeof place->run_id, "%s", rank->run_id);
    else
        snprintf(place->run_id, sizeof place->run_id, "parent-%ld", (long)getppid());
}

static void choose_folder(yoke_store_place *place, const yoke_rank_info *rank) {
    name_run(place, rank);
    snprintf(place->address, sizeof place->address, "file:///tmp/yoke-%ld-%016llx", (long)geteuid(),
             (unsigned long long)hash_text(place->run_id));
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
        write_tcp(place, "127.0.0.1", 0);
        return YOKE_OK;
    }
    if (strstr(rank->address, "://") != NULL) { /* the launcher chose a whole address */
        strcpy(place->address, rank->address);
        return YOKE_OK;
    }
    if (one_machine && rank->port == 0) {
        choose_folder(place, rank);
        return YOKE_OK;
    }
    if (rank->address[0] == '\0' && !one_machine)
        return FAIL(
            YOKE_ERROR_ARGUMENT,
            "rank %d of %d runs on one machine of several, but has no address of rank 0: set "
            "MASTER_ADDR and MASTER_PORT",
            rank->rank, rank->world);
    if (rank->port == 0) return choose_port(place, rank);
    /* All ranks are on this machine: do not listen for others. */
    write_tcp(place, one_machine ? "127.0.0.1" : rank->address, rank->port);
    return YOKE_OK;
}
