/* Secrets come by the environment or a file, never by the command line, which everybody can read.
 */
#include "rank_options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

#define TOKEN "YOKE_RDZV_TOKEN"
#define TOKEN_FILE "YOKE_RDZV_TOKEN_FILE"

/* NULL, or what is wrong with who may read the file. */
static const char *find_stranger(const struct stat *file) {
    if (!S_ISREG(file->st_mode)) return "is no file";
    if (file->st_uid != geteuid()) return "is another user's";
    if ((file->st_mode & 077) != 0) return "can be read by others: chmod 600 it";
    return NULL;
}

static int read_file(rank_token *token, const char *path, const char *verb) {
    struct stat file;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0 || fstat(descriptor, &file) != 0) {
        if (descriptor >= 0) close(descriptor);
        return cli_usage_error(verb, TOKEN_FILE ": %s: %s", path, strerror(errno));
    }
    const char *wrong = find_stranger(&file);
    ssize_t bytes = wrong == NULL ? read(descriptor, token->text, sizeof token->text) : 0;
    close(descriptor);
    if (wrong != NULL) return cli_usage_error(verb, TOKEN_FILE ": %s %s", path, wrong);
    if (bytes < 0) return cli_usage_error(verb, TOKEN_FILE ": %s: %s", path, strerror(errno));
    if (bytes == (ssize_t)sizeof token->text)
        return cli_usage_error(verb, TOKEN_FILE ": %s has more than %zu bytes", path,
                               sizeof token->text - 1);
    token->text[bytes] = '\0';
    token->text[strcspn(token->text, "\r\n")] = '\0';
    token->given = token->text;
    if (token->text[0] == '\0')
        return cli_usage_error(verb, TOKEN_FILE ": the first line of %s is empty", path);
    return -1;
}

int rank_token_read(rank_token *token, const char *verb) {
    const char *text = getenv(TOKEN), *path = getenv(TOKEN_FILE);
    token->given = NULL;
    if (text != NULL && path != NULL)
        return cli_usage_error(verb, "both " TOKEN " and " TOKEN_FILE " are set: unset one");
    if (path != NULL) return read_file(token, path, verb);
    if (text == NULL) return -1;
    size_t bytes = strlen(text);
    if (bytes == 0 || bytes >= sizeof token->text)
        return cli_usage_error(verb, TOKEN " has %zu bytes: 1 to %zu are expected", bytes,
                               sizeof token->text - 1);
    memcpy(token->text, text, bytes + 1);
    token->given = token->text;
    return -1;
}

static const char *look_up(const char *name, void *payload) {
    (void)payload;
    return getenv(name);
}

int rank_info_read(yoke_rank_info *info) {
    *info = (yoke_rank_info){.struct_size = sizeof *info};
    yoke_status status = yoke_rank_detect(info, look_up, NULL);
    return status == YOKE_OK ? -1 : cli_fail(status);
}
