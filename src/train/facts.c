/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint states about its run, and how a resumed run compares that with its own. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "train/checkpoint.h"

#define CONFIG "config."

void yoke_facts_add(yoke_facts *facts, const char *key, const char *format, ...) {
    va_list arguments;
    if (facts->count == YOKE_FACTS) return; /* the tests count them */
    yoke_fact *fact = &facts->items[facts->count++];
    snprintf(fact->key, sizeof fact->key, "%s", key);
    va_start(arguments, format);
    vsnprintf(fact->value, sizeof fact->value, format, arguments);
    va_end(arguments);
}

void yoke_facts_add_real(yoke_facts *facts, const char *key, double value) {
    char text[32];
    yoke_facts_add(facts, key, "%s", yoke_text_of_real(value, text, sizeof text));
}

void yoke_facts_add_table(yoke_facts *facts, const yoke_option_table *table, const void *owner) {
    char text[YOKE_OPTION_BYTES], key[40];
    for (int i = 0; i < table->count; i++) {
        const yoke_option *row = &table->rows[i];
        bool compared = (row->uses & YOKE_OPTION_COMPARED) != 0;
        if (!compared && (row->uses & YOKE_OPTION_RECORDED) == 0) continue;
        if (!yoke_option_text(table, i, owner, text)) continue;
        snprintf(key, sizeof key, "%s%s", compared ? CONFIG : "run.", row->name);
        yoke_facts_add(facts, key, "%s", text);
    }
}

/* Whether a list with commas, and perhaps blanks, has a word. */
static bool has_word(const char *list, const char *word, size_t length) {
    for (const char *next = list; next != NULL && *next != '\0';) {
        next += strspn(next, ", ");
        size_t found = strcspn(next, ", ");
        if (found == length && strncmp(next, word, length) == 0) return true;
        next += found;
    }
    return false;
}

bool yoke_facts_lists(const char *anyway, const char *name) {
    return has_word(anyway, name, strlen(name));
}

/* Every name behind "config.", with commas between them. */
#define NAMES_BYTES 640
static const char *list_compared(char names[NAMES_BYTES]) {
    const yoke_option_table *const tables[] = {&yoke_engine_options, &yoke_run_options};
    size_t used = 0;
    names[0] = '\0';
    for (int t = 0; t < 2; t++) {
        for (int i = 0; i < tables[t]->count; i++) {
            const yoke_option *row = &tables[t]->rows[i];
            if ((row->uses & YOKE_OPTION_COMPARED) == 0 || yoke_facts_lists(names, row->name))
                continue;
            used += (size_t)snprintf(names + used, NAMES_BYTES - used, "%s%s", used > 0 ? ", " : "",
                                     row->name);
        }
    }
    return names;
}

yoke_status yoke_facts_check_names(const char *anyway) {
    char names[NAMES_BYTES];
    if (anyway == NULL || anyway[0] == '\0') return YOKE_OK;
    list_compared(names);
    for (const char *next = anyway;; next++) {
        size_t length = strcspn(next, ",");
        if (length == 0 || !has_word(names, next, length))
            return FAIL(YOKE_ERROR_ARGUMENT,
                        "resume anyway: '%.*s' is no option that a resume compares; these are %s",
                        (int)(length < 40 ? length : 40), next, names);
        next += length;
        if (*next == '\0') return YOKE_OK;
    }
}

/* What differs, as much of it as a message can hold, and the names to go on with. */
typedef struct differences {
    char text[480], names[NAMES_BYTES];
    int left_out; /* differences for which `text` has no room */
} differences;

#define VALUE_BYTES 96

/* A long value is shown from a little before the place where it differs. */
static const char *show_value(const char *value, size_t equal, char text[VALUE_BYTES]) {
    enum { CONTEXT = 20, SHOWN = VALUE_BYTES - 7 }; /* 7: "..." twice, and the end */
    size_t skipped = strlen(value) <= SHOWN || equal < CONTEXT ? 0 : equal - CONTEXT;
    snprintf(text, VALUE_BYTES, "%s%.*s%s", skipped > 0 ? "..." : "", SHOWN, value + skipped,
             strlen(value + skipped) > SHOWN ? "..." : "");
    return text;
}

static void add_difference(differences *found, const char *name, const char *own,
                           const char *theirs) {
    char values[2][VALUE_BYTES], text[sizeof found->text];
    size_t equal = 0, used = strlen(found->text), listed = strlen(found->names);
    while (own[equal] != '\0' && own[equal] == theirs[equal])
        equal++;
    snprintf(found->names + listed, sizeof found->names - listed, "%s%s", listed > 0 ? "," : "",
             name);
    int length =
        snprintf(text, sizeof text, "%s%s is %s here and %s there", used > 0 ? "; " : "", name,
                 show_value(own, equal, values[0]), show_value(theirs, equal, values[1]));
    if (found->left_out > 0 || used + (size_t)length >= sizeof found->text)
        found->left_out++;
    else
        memcpy(found->text + used, text, (size_t)length + 1);
}

yoke_status yoke_facts_compare(const yoke_facts *own, const yoke_safetensors *file,
                               const char *anyway) {
    differences found = {0};
    char more[24] = "";
    TRY(yoke_facts_check_names(anyway));
    for (int i = 0; i < own->count; i++) {
        const yoke_fact *fact = &own->items[i];
        const char *name = fact->key + strlen(CONFIG);
        const char *theirs = yoke_safetensors_note(file, fact->key);
        if (strncmp(fact->key, CONFIG, strlen(CONFIG)) != 0 || theirs == NULL) continue;
        if (strcmp(theirs, fact->value) == 0 || yoke_facts_lists(anyway, name)) continue;
        add_difference(&found, name, fact->value, theirs);
    }
    if (found.names[0] == '\0') return YOKE_OK;
    if (found.left_out > 0) snprintf(more, sizeof more, "; and %d more", found.left_out);
    return FAIL(YOKE_ERROR_ARGUMENT,
                "%s: another run's checkpoint: %s%s; to go on with it all the same: "
                "--resume-anyway %s",
                file->path, found.text, more, found.names);
}
