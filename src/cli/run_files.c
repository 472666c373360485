/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/run_files.h"

#include <dirent.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int check_apart(const train_setup *setup, bool speaks) {
    const yoke_trainer_options *run = &setup->run;
    bool replaces =
        run->init != NULL && run->save != NULL && yoke_file_is_same(run->init, run->save);
    const yoke_used_file used[] = {
        {"--save", run->save, YOKE_FILE_WRITTEN},
        {"--metrics", run->metrics, YOKE_FILE_WRITTEN},
        {"--trace", run->trace, YOKE_FILE_WRITTEN},
        {"--report", setup->report, YOKE_FILE_WRITTEN},
        {"--init", replaces ? NULL : run->init, YOKE_FILE_READ},
        {"--resume", train_setup_is_auto(setup) ? NULL : run->resume, YOKE_FILE_READ},
        {"--algorithm-cache", setup->algorithm_cache.file, YOKE_FILE_READ},
        {"--config", setup->config.file, YOKE_FILE_READ},
        {"--dataset", run->dataset, YOKE_FILE_SPEC},
        {"--checkpoint-dir", run->checkpoint_dir, YOKE_FILE_CHECKPOINTS}};
    yoke_status status = yoke_files_check_apart(used, (int)(sizeof used / sizeof used[0]));
    if (status == YOKE_OK) return -1;
    return speaks ? cli_usage_error("train", "%s", yoke_last_error())
                  : yoke_status_exit_code(status);
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

/* A range test writes its page alone. */
static int check_replaced(const train_setup *setup, bool speaks) {
    const yoke_trainer_options *run = &setup->run;
    bool tests = setup->lr_find > 0;
    bool goes_on = run->resume != NULL &&
                   (!train_setup_is_auto(setup) || has_checkpoints(run->checkpoint_dir));
    bool replaces = !tests && is_there(run->save);
    if (setup->force || goes_on || is_restarted()) return -1;
    if (replaces && !speaks) return yoke_status_exit_code(YOKE_ERROR_ARGUMENT);
    if (replaces)
        return cli_usage_error("train",
                               "--save: %s exists; --force lets the run replace it, or choose "
                               "another name",
                               run->save);
    if (!speaks || setup->quiet) return -1;
    if (!tests) say_replaced("--metrics", run->metrics);
    if (!tests) say_replaced("--trace", run->trace);
    say_replaced("--report", setup->report);
    return -1;
}

int run_files_check(const train_setup *setup, bool speaks) {
    int code = check_apart(setup, speaks);
    return code >= 0 ? code : check_replaced(setup, speaks);
}

void run_files_resume(yoke_trainer_options *run) {
    /* The checkpoints of the first try are newer than the file that it began with. */
    bool newer = run->resume == NULL || has_checkpoints(run->checkpoint_dir);
    if (run->checkpoint_dir != NULL && is_restarted() && newer) run->resume = "auto";
}
