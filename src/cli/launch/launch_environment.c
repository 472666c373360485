/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of ranks. A secret travels in the environment or a file, never on a command line, which
 * every user of the machine can read. */
#include "cli/launch/launch_environment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

/* For workers. */

typedef struct variables {
    launch_variable *list;
    int count;
} variables;

static void add_text(variables *to, const char *name, const char *value) {
    launch_variable *next = &to->list[to->count++];
    snprintf(next->name, sizeof next->name, "%s", name);
    snprintf(next->value, sizeof next->value, "%s", value);
}

static void add_number(variables *to, const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    add_text(to, name, text);
}

static void add_port(variables *to, const char *name, const launch_plan *plan) {
    if (plan->port > 0)
        add_number(to, name, plan->port);
    else
        add_text(to, name, plan->nodes > 1 ? "<--master-port>" : "<free>");
}

/* As torchrun sets them, so that its programs run here. No agent keeps the store: rank 0 does. */
static void add_torchrun(variables *to, const launch_plan *plan, int rank) {
    int world = plan->nproc * plan->nodes;
    add_number(to, "LOCAL_RANK", rank % plan->nproc);
    add_number(to, "RANK", rank);
    add_number(to, "GROUP_RANK", rank / plan->nproc);
    add_number(to, "ROLE_RANK", rank);
    add_text(to, "ROLE_NAME", "default");
    add_number(to, "LOCAL_WORLD_SIZE", plan->nproc);
    add_number(to, "WORLD_SIZE", world);
    add_number(to, "GROUP_WORLD_SIZE", plan->nodes);
    add_number(to, "ROLE_WORLD_SIZE", world);
    add_text(to, "MASTER_ADDR", plan->host);
    add_port(to, "MASTER_PORT", plan);
    add_number(to, "TORCHELASTIC_RESTART_COUNT", plan->restart);
    add_number(to, "TORCHELASTIC_MAX_RESTARTS", plan->max_restarts);
    add_text(to, "TORCHELASTIC_RUN_ID", plan->run_id);
    add_text(to, "TORCHELASTIC_USE_AGENT_STORE", "False");
    if (plan->nproc > 1 && getenv("OMP_NUM_THREADS") == NULL) add_text(to, "OMP_NUM_THREADS", "1");
}

static void add_yoke(variables *to, const launch_plan *plan, int rank) {
    bool folder = plan->store[0] != '\0';
    add_number(to, "YOKE_RANK", rank);
    add_number(to, "YOKE_WORLD_SIZE", plan->nproc * plan->nodes);
    add_number(to, "YOKE_LOCAL_RANK", rank % plan->nproc);
    add_number(to, "YOKE_LOCAL_WORLD_SIZE", plan->nproc);
    add_number(to, "YOKE_NODE_RANK", rank / plan->nproc);
    add_number(to, "YOKE_NODES", plan->nodes);
    add_text(to, "YOKE_MASTER_ADDR", folder ? plan->store : plan->host);
    if (folder)
        add_text(to, "YOKE_MASTER_PORT", "");
    else
        add_port(to, "YOKE_MASTER_PORT", plan);
    add_text(to, "YOKE_RUN_ID", plan->run_id);
    add_text(to, "YOKE_ROLL", plan->roll);
    if (plan->min_ranks > 0) add_number(to, "YOKE_MIN_RANKS", plan->min_ranks);
}

int launch_variables(const launch_plan *plan, int rank, launch_variable list[LAUNCH_VARIABLES]) {
    variables to = {.list = list};
    add_torchrun(&to, plan, rank);
    add_yoke(&to, plan, rank);
    return to.count;
}

/* This process's own. */

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

int rank_info_read(yoke_rank_info *info) {
    *info = (yoke_rank_info){.struct_size = sizeof *info};
    yoke_status status = yoke_rank_detect(info, look_up, NULL);
    return status == YOKE_OK ? -1 : cli_fail(status);
}

int rank_roll_read(yoke_process_group_options *group) {
    const char *roll = getenv("YOKE_ROLL"), *least = getenv("YOKE_MIN_RANKS");
    double number = 0;
    if (roll == NULL || *roll == '\0') return -1;
    if (least != NULL && !yoke_text_real(least, 0, 1 << 20, &number))
        return cli_usage_error("train", "YOKE_MIN_RANKS is '%s': a number of ranks is expected",
                               least);
    group->roll = roll;
    group->min_ranks = (int)number;
    return -1;
}

#define TOKEN "YOKE_RDZV_TOKEN"
#define TOKEN_FILE "YOKE_RDZV_TOKEN_FILE"

/* NULL, or who else could read the secret. */
static const char *find_reader(const struct stat *file) {
    if (!S_ISREG(file->st_mode)) return "is not a regular file";
    if (file->st_uid != geteuid()) return "belongs to another user";
    if ((file->st_mode & 077) != 0) return "can be read by others; run chmod 600 on it";
    return NULL;
}

static int read_file(rank_token *token, const char *path, const char *verb) {
    struct stat file;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 || fstat(descriptor, &file) != 0) {
        if (descriptor >= 0) close(descriptor);
        return cli_usage_error(verb, TOKEN_FILE ": %s: %s", path, strerror(errno));
    }
    const char *wrong = find_reader(&file);
    ssize_t bytes = wrong == NULL ? read(descriptor, token->text, sizeof token->text) : 0;
    close(descriptor);
    if (wrong != NULL) return cli_usage_error(verb, TOKEN_FILE ": %s %s", path, wrong);
    if (bytes < 0) return cli_usage_error(verb, TOKEN_FILE ": %s: %s", path, strerror(errno));
    if (bytes == (ssize_t)sizeof token->text)
        return cli_usage_error(verb, TOKEN_FILE ": %s has more than %zu bytes; shorten the secret",
                               path, sizeof token->text - 1);
    token->text[bytes] = '\0';
    token->text[strcspn(token->text, "\r\n")] = '\0';
    token->given = token->text;
    if (token->text[0] == '\0')
        return cli_usage_error(
            verb, TOKEN_FILE ": the first line of %s is empty; write the secret there", path);
    return -1;
}

int rank_token_read(rank_token *token, const char *verb) {
    const char *text = getenv(TOKEN), *path = getenv(TOKEN_FILE);
    token->given = NULL;
    if (text != NULL && path != NULL)
        return cli_usage_error(verb, "both " TOKEN " and " TOKEN_FILE " are set; unset one");
    if (path != NULL) return read_file(token, path, verb);
    if (text == NULL) return -1;
    size_t bytes = strlen(text);
    if (bytes == 0 || bytes >= sizeof token->text)
        return cli_usage_error(verb, TOKEN " has %zu bytes; give it 1 to %zu", bytes,
                               sizeof token->text - 1);
    memcpy(token->text, text, bytes + 1);
    token->given = token->text;
    return -1;
}
