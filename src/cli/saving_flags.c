/* SPDX-License-Identifier: Apache-2.0 */
/* Reads "10m" and "500steps", and refuses what contradicts itself before a run begins. */
#include "cli/saving_flags.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cli.h"

#define MOST 1e15

typedef struct interval {
    double amount;
    yoke_checkpoint_unit unit;
} interval;

static int malformed_interval(const char *text) {
    return cli_usage_error("train",
                           "--checkpoint-every: '%s' is not a number above 0 with s, m, steps or "
                           "epochs behind it, as in 10m or 500steps",
                           text);
}

/* -1, or the exit code. */
static int read_interval(interval *read, const char *text) {
    static const struct {
        const char *suffix;
        yoke_checkpoint_unit unit;
        double scale;
    } units[] = {{"", YOKE_CHECKPOINT_STEPS, 1},
                 {"steps", YOKE_CHECKPOINT_STEPS, 1},
                 {"epochs", YOKE_CHECKPOINT_EPOCHS, 1},
                 {"s", YOKE_CHECKPOINT_SECONDS, 1},
                 {"m", YOKE_CHECKPOINT_SECONDS, 60}};
    char number[32];
    double amount;
    size_t length = strspn(text, "0123456789."), unit = 0, count = sizeof units / sizeof units[0];
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    while (unit < count && strcmp(text + length, units[unit].suffix) != 0)
        unit++;
    if (unit == count || !yoke_text_real(number, 0, MOST, &amount) || amount == 0)
        return malformed_interval(text);
    if (units[unit].unit != YOKE_CHECKPOINT_SECONDS && strchr(number, '.') != NULL)
        return cli_usage_error("train",
                               "--checkpoint-every: '%s' is not a whole number; only seconds (s) "
                               "and minutes (m) may have a fraction",
                               text);
    *read = (interval){amount * units[unit].scale, units[unit].unit};
    return -1;
}

static bool is_auto(const char *resume) {
    return resume != NULL && strcmp(resume, "auto") == 0;
}

bool saving_flags_are_auto(const saving_flags *flags) {
    return is_auto(flags->resume);
}

static int check_resume(const saving_flags *flags, const char *init) {
    if (is_auto(flags->resume) && flags->dir == NULL)
        return cli_usage_error("train", "--resume auto needs --checkpoint-dir");
    if (flags->resume != NULL && !is_auto(flags->resume) && init != NULL)
        return cli_usage_error("train",
                               "--resume %s and --init %s both bring weights: leave one out "
                               "(--resume auto takes --init where there is no checkpoint)",
                               flags->resume, init);
    if (flags->resume_anyway != NULL && flags->resume == NULL)
        return cli_usage_error("train", "--resume-anyway %s needs --resume", flags->resume_anyway);
    return -1;
}

int saving_flags_check(const saving_flags *flags, const saving_context *context) {
    interval unused;
    int code = flags->every != NULL ? read_interval(&unused, flags->every) : -1;
    if (code >= 0) return code;
    bool wants_folder = flags->every != NULL || flags->keep > 0 || flags->keep_best;
    if (flags->dir == NULL && wants_folder)
        return cli_usage_error("train", "--checkpoint-every, --keep and --keep-best need "
                                        "--checkpoint-dir");
    if (flags->keep_best && context->evaluate_every < 0)
        return cli_usage_error("train", "--keep-best compares evaluations, and --evaluate-every -1 "
                                        "means none; --evaluate-every 1: after each epoch");
    return check_resume(flags, context->init);
}

/* A launcher that starts failed ranks again counts its restarts. */
static bool is_restarted(void) {
    const char *count = getenv("TORCHELASTIC_RESTART_COUNT");
    return count != NULL && atoi(count) > 0;
}

static bool has_checkpoints(const char *folder) {
    bool found = false;
    DIR *directory = folder != NULL ? opendir(folder) : NULL;
    if (directory == NULL) return false;
    for (struct dirent *entry; !found && (entry = readdir(directory)) != NULL;)
        found = fnmatch("step-*.safetensors", entry->d_name, 0) == 0 ||
                strcmp(entry->d_name, "best.safetensors") == 0;
    closedir(directory);
    return found;
}

static bool is_there(const char *path) {
    struct stat file;
    return path != NULL && stat(path, &file) == 0 && S_ISREG(file.st_mode);
}

static void say_replaced(const char *option, const char *path) {
    if (is_there(path)) fprintf(stderr, "yoke: %s replaces %s\n", option, path);
}

int saving_flags_check_replaced(const saving_flags *flags, const saving_files *files, bool speaks,
                                bool quiet) {
    bool goes_on =
        flags->resume != NULL && (!is_auto(flags->resume) || has_checkpoints(flags->dir));
    if (flags->force || goes_on || is_restarted()) return -1;
    if (is_there(files->save) && !speaks) return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    if (is_there(files->save))
        return cli_usage_error("train",
                               "--save: %s exists; --force lets the run replace it, or choose "
                               "another name",
                               files->save);
    if (!speaks || quiet) return -1;
    say_replaced("--metrics", files->metrics);
    say_replaced("--trace", files->trace);
    say_replaced("--report", files->report);
    return -1;
}

int saving_flags_check_apart(const saving_flags *flags, const saving_files *files, bool speaks) {
    bool replaces =
        files->init != NULL && files->save != NULL && yoke_file_is_same(files->init, files->save);
    const yoke_used_file used[] = {
        {"--save", files->save, YOKE_FILE_WRITTEN},
        {"--metrics", files->metrics, YOKE_FILE_WRITTEN},
        {"--trace", files->trace, YOKE_FILE_WRITTEN},
        {"--report", files->report, YOKE_FILE_WRITTEN},
        {"--init", replaces ? NULL : files->init, YOKE_FILE_READ},
        {"--resume", is_auto(flags->resume) ? NULL : flags->resume, YOKE_FILE_READ},
        {"--choices", files->choices, YOKE_FILE_READ},
        {"--config", files->config, YOKE_FILE_READ},
        {"--dataset", files->dataset, YOKE_FILE_SPEC},
        {"--checkpoint-dir", flags->dir, YOKE_FILE_CHECKPOINTS}};
    yoke_status status = yoke_files_check_apart(used, (int)(sizeof used / sizeof used[0]));
    if (status == YOKE_OK) return -1;
    return speaks ? cli_usage_error("train", "%s", yoke_last_error())
                  : yoke_status_exit_code(status);
}

void saving_flags_fill(yoke_trainer_options *run, const saving_flags *flags) {
    interval every = {0};
    if (flags->every != NULL) (void)read_interval(&every, flags->every);
    run->checkpoint_every = every.amount;
    run->checkpoint_unit = every.unit;
    run->checkpoint_dir = flags->dir;
    run->keep = flags->keep;
    run->keep_best = flags->keep_best;
    run->resume = flags->resume;
    run->resume_anyway = flags->resume_anyway;
    /* The checkpoints of the first try are newer than the file that it began with. */
    bool newer = run->resume == NULL || has_checkpoints(run->checkpoint_dir);
    if (run->checkpoint_dir != NULL && is_restarted() && newer) run->resume = "auto";
}
