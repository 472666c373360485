/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of all ranks: rank 0's goes to the others; facts that must be equal are compared. If they
 * are equal, ranks exchange one hash; otherwise a binary search over hashes finds the first line
 * that differs, and the error shows both sides. */
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "distributed/transport.h"

#define LINE_WORDS 32
#define LINE_BYTES (LINE_WORDS * sizeof(int64_t))

/* The start of line `index`, or the end of the text. */
static const char *find_line(const char *text, int64_t index) {
    for (; index > 0 && *text != '\0'; index--)
        text += strcspn(text, "\n") + 1;
    return text;
}

static int64_t count_lines(const char *text) {
    int64_t count = 0;
    for (; *text != '\0'; text++)
        count += *text == '\n';
    return count;
}

/* Gathers a hash of the first `lines` lines: it differs if, and only if, one of them does. */
static yoke_status gather_hashes(yoke_process_group *group, const char *text, int64_t lines,
                                 int64_t *hashes) {
    int64_t own = (int64_t)XXH3_64bits(text, (size_t)(find_line(text, lines) - text));
    return yoke_process_group_all_gather(group, hashes, &own, 1, YOKE_ELEMENT_INT64);
}

/* The first rank that differs from rank 0; 0: none does. */
static int first_other(const yoke_process_group *group, const int64_t *hashes) {
    for (int rank = 1; rank < group->world; rank++) {
        if (hashes[rank] != hashes[0]) return rank;
    }
    return 0;
}

/* The first line in which some rank differs from rank 0. Every rank takes the same branches. */
static yoke_status find_difference(yoke_process_group *group, const char *text, int64_t *hashes,
                                   int64_t *line) {
    int64_t same = 0, different = count_lines(text);
    TRY(yoke_process_group_all_reduce(group, &different, 1, YOKE_ELEMENT_INT64, YOKE_MAX));
    while (different - same > 1) {
        int64_t middle = same + (different - same) / 2;
        TRY(gather_hashes(group, text, middle, hashes));
        if (first_other(group, hashes) == 0)
            same = middle;
        else
            different = middle;
    }
    *line = same;
    return gather_hashes(group, text, different, hashes);
}

static yoke_status fail_difference(yoke_process_group *group, const char *text, int64_t *hashes) {
    int64_t line = 0, words[LINE_WORDS] = {0}, all[YOKE_AGREE_RANKS][LINE_WORDS];
    TRY(find_difference(group, text, hashes, &line));
    int other = first_other(group, hashes);
    const char *own = find_line(text, line);
    size_t bytes = strcspn(own, "\n");
    memcpy(words, own, bytes < LINE_BYTES ? bytes : LINE_BYTES - 1);
    TRY(yoke_process_group_all_gather(group, all, words, LINE_WORDS, YOKE_ELEMENT_INT64));
    const char *first = (const char *)all[0], *second = (const char *)all[other];
    return FAIL(YOKE_ERROR_PEER,
                "the ranks differ: rank 0 has \"%s\", rank %d has \"%s\"; start all ranks "
                "with the same program, model, data and options",
                *first != '\0' ? first : "nothing", other, *second != '\0' ? second : "nothing");
}

yoke_status yoke_ranks_agree(yoke_process_group *group, const char *text) {
    int64_t hashes[YOKE_AGREE_RANKS];
    if (group->world > YOKE_AGREE_RANKS)
        return FAIL(YOKE_ERROR_ARGUMENT, "%d ranks cannot agree: at most %d can train together",
                    group->world, YOKE_AGREE_RANKS);
    TRY(gather_hashes(group, text, INT64_MAX, hashes));
    return first_other(group, hashes) == 0 ? YOKE_OK : fail_difference(group, text, hashes);
}

yoke_status yoke_ranks_share_text(yoke_process_group *group, char **text) {
    int64_t bytes = group->rank == 0 ? (int64_t)strlen(*text) + 1 : 0;
    TRY(yoke_process_group_broadcast(group, &bytes, 1, YOKE_ELEMENT_INT64, 0));
    size_t words = ((size_t)bytes + sizeof(int64_t) - 1) / sizeof(int64_t);
    char *padded = yoke_calloc(words, sizeof(int64_t));
    if (padded == NULL) return FAIL_MEMORY(words * sizeof(int64_t), "rank 0's text");
    if (group->rank == 0) memcpy(padded, *text, (size_t)bytes);
    yoke_free(*text);
    *text = padded;
    return yoke_process_group_broadcast(group, padded, words, YOKE_ELEMENT_INT64, 0);
}
