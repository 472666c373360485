/* SPDX-License-Identifier: Apache-2.0 */
/* Every order in which the steps of two and three processes, and deaths among them, can follow each
 * other while they meet: the protocol's own code takes each step. Nobody is left out who runs, no
 * generation has two groups of members, and from everywhere a group can still form. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "distributed/roll/roll.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST = 3, GENERATIONS = 6, STATES = 1 << 22 };

/* What one process does, and what its seat says. */
typedef struct player {
    uint8_t state, at, generation, before, come, awaited, members; /* of its meeting */
    uint8_t wants, since;                                          /* in its seat */
    bool alive, was_member, impatient, formed;
} player;

/* Everything that the next steps depend on; compared as bytes. */
typedef struct scene {
    uint8_t members[GENERATIONS];
    uint8_t deaths, hurries; /* that may still happen */
    player players[MOST];
} scene;

typedef enum event_kind { STEPS, DIES, HURRIES } event_kind;
typedef struct event {
    event_kind kind;
    int who;
} event;

typedef struct found {
    scene now;
    uint32_t before; /* index of the scene that it was found from */
    event event;
    bool ends; /* can end well */
} found;

typedef struct exploration {
    int players;
    bool patient; /* nobody loses patience */
    bool spoils;  /* the planted fault: members are written without looking */
    found *all;   /* [count], in the order in which they were found: breadth first */
    uint32_t *index, *from, *to;
    uint32_t count, edges, edge_room;
    const char *wrong; /* NULL: nothing */
} exploration;

static yoke_roll_page page;
static const scene *shown; /* to look */

static yoke_process_state look(const yoke_roll_meeting *meeting, int seat) {
    (void)meeting;
    return seat < MOST && shown->players[seat].alive ? YOKE_PROCESS_RUNNING : YOKE_PROCESS_ENDED;
}

/* To and from the protocol's own structs. */

static void lay_out(const scene *now, int players) {
    for (int g = 0; g < GENERATIONS; g++)
        atomic_store(&page.members[g], now->members[g]);
    for (int i = 0; i < players; i++) {
        atomic_store(&page.seats[i].wants, now->players[i].wants);
        atomic_store(&page.seats[i].since, now->players[i].since);
    }
    shown = now;
}

static void pick_up(scene *now, int players) {
    for (int g = 0; g < GENERATIONS; g++)
        now->members[g] = (uint8_t)atomic_load(&page.members[g]);
    for (int i = 0; i < players; i++)
        now->players[i].wants = (uint8_t)atomic_load(&page.seats[i].wants);
}

static yoke_roll_meeting meeting_of(const player *own, int seat) {
    return (yoke_roll_meeting){.page = &page,
                               .seat = seat,
                               .generation = own->generation,
                               .before = own->before,
                               .was_member = own->was_member,
                               .impatient = own->impatient,
                               .state = (yoke_roll_state)own->state,
                               .at = own->at,
                               .come = own->come,
                               .awaited = own->awaited,
                               .members = own->members,
                               .look = look};
}

static void keep_meeting(player *own, const yoke_roll_meeting *meeting) {
    own->before = (uint8_t)meeting->before;
    own->state = (uint8_t)meeting->state;
    own->at = (uint8_t)meeting->at;
    own->come = (uint8_t)meeting->come;
    own->awaited = (uint8_t)meeting->awaited;
    own->members = (uint8_t)meeting->members;
}

/* Seats that nobody has change nothing: they are counted at once. */
static void take_step(const exploration *own, scene *now, int who) {
    player *one = &now->players[who];
    yoke_roll_meeting meeting = meeting_of(one, who);
    bool spoils = own->spoils && meeting.state == YOKE_ROLL_DECIDES;
    if (spoils) {
        atomic_store(&page.members[meeting.generation], meeting.come);
        meeting.state = YOKE_ROLL_READS;
    } else {
        do
            yoke_roll_step(&meeting);
        while (meeting.state == YOKE_ROLL_COUNTS && meeting.at >= own->players);
    }
    keep_meeting(one, &meeting);
    pick_up(now, own->players);
}

/* What a process does behind the protocol. */

static void begin(scene *now, int who, int generation) {
    player *one = &now->players[who];
    one->generation = (uint8_t)generation;
    one->impatient = one->formed = false;
    if (!one->was_member) one->since = (uint8_t)(generation + 1);
    yoke_roll_meeting meeting = meeting_of(one, who);
    yoke_roll_begin(&meeting);
    keep_meeting(one, &meeting);
}

/* A member that cannot come to a collective of this generation. */
static bool is_lost(const scene *now, int seat, int generation) {
    return !now->players[seat].alive || now->players[seat].wants != generation + 1;
}

/* A group forms, or fails because a member is lost, which all others see. Between two steps the
 * members see who asks to be taken in. */
static void form(scene *now, int who, int players) {
    player *one = &now->players[who];
    bool lost = false, all = true;
    for (int i = 0; i < players; i++) {
        lost |= now->players[i].alive && now->players[i].wants == one->generation + 2;
        if ((one->members >> i & 1) == 0) continue;
        lost |= is_lost(now, i, one->generation);
        all &= now->players[i].state == YOKE_ROLL_IS_MEMBER;
    }
    one->was_member = true;
    if (lost && one->generation + 2 < GENERATIONS)
        begin(now, who, one->generation + 1);
    else
        one->formed = all;
}

static bool act(const exploration *own, scene *now, int who) {
    player *one = &now->players[who];
    if (!one->alive || (one->formed && one->state == YOKE_ROLL_IS_MEMBER)) {
        if (!one->alive) return false;
        form(now, who, own->players); /* a member may be lost later, too */
        return true;
    }
    if (one->state == YOKE_ROLL_IS_MEMBER) {
        form(now, who, own->players);
    } else if (one->state == YOKE_ROLL_IS_LEFT_OUT && one->was_member) {
        one->alive = false; /* its process ends */
    } else if (one->state == YOKE_ROLL_IS_LEFT_OUT) {
        int next = (int)yoke_roll_next(&page);
        if (next >= GENERATIONS) return false;
        begin(now, who, next);
    } else {
        take_step(own, now, who);
    }
    return true;
}

/* Exploring. */

static uint32_t find(exploration *own, const scene *now, bool *is_new) {
    uint32_t slot = (uint32_t)XXH3_64bits(now, sizeof *now) & (2 * STATES - 1);
    for (; own->index[slot] != 0; slot = (slot + 1) & (2 * STATES - 1)) {
        if (memcmp(&own->all[own->index[slot] - 1].now, now, sizeof *now) == 0) {
            *is_new = false;
            return own->index[slot] - 1;
        }
    }
    assert_true(own->count < STATES);
    *is_new = true;
    own->index[slot] = own->count + 1;
    own->all[own->count] = (found){.now = *now};
    return own->count++;
}

static void add_edge(exploration *own, uint32_t from, uint32_t to) {
    if (own->edges == own->edge_room) {
        own->edge_room = own->edge_room * 2 + 1024;
        own->from = realloc(own->from, own->edge_room * sizeof *own->from);
        own->to = realloc(own->to, own->edge_room * sizeof *own->to);
        assert_true(own->from != NULL && own->to != NULL);
    }
    own->from[own->edges] = from;
    own->to[own->edges++] = to;
}

/* All that live are in one group, and all of it lives. */
static bool ends_well(const scene *now, int players) {
    uint8_t living = 0, members = 0;
    bool formed = true;
    for (int i = 0; i < players; i++) {
        if (!now->players[i].alive) continue;
        living |= (uint8_t)(1 << i);
        formed &= now->players[i].formed;
        members |= now->players[i].members;
    }
    return formed && (living == members || living == 0);
}

static const char *check(const exploration *own, const scene *before, const scene *now) {
    for (int g = 0; g < GENERATIONS; g++)
        if (before->members[g] != 0 && before->members[g] != now->members[g])
            return "a generation has two groups of members";
    for (int i = 0; i < own->players && own->patient; i++) {
        const player *one = &now->players[i];
        if (one->alive && one->was_member && one->state == YOKE_ROLL_IS_LEFT_OUT)
            return "a member that runs is left out";
    }
    return NULL;
}

static void explore_from(exploration *own, uint32_t at, event next) {
    scene before = own->all[at].now, now = before;
    bool is_new;
    player *one = &now.players[next.who];
    lay_out(&now, own->players);
    if (next.kind == STEPS && !act(own, &now, next.who)) return;
    if (next.kind == DIES) {
        if (!one->alive || now.deaths == 0) return;
        one->alive = false;
        now.deaths--;
    }
    if (next.kind == HURRIES) {
        if (!one->alive || !one->was_member || one->state != YOKE_ROLL_WAITS || now.hurries == 0)
            return;
        one->impatient = true;
        now.hurries--;
    }
    uint32_t to = find(own, &now, &is_new);
    add_edge(own, at, to);
    if (is_new) {
        own->all[to].before = at;
        own->all[to].event = next;
    }
    if (own->wrong == NULL) own->wrong = check(own, &before, &now);
}

static void print_order(const exploration *own, uint32_t last) {
    static const char *const words[] = {"steps", "dies", "loses its patience"};
    uint32_t path[256];
    int length = 0;
    for (uint32_t at = last; at != 0 && length < 256; at = own->all[at].before)
        path[length++] = at;
    printf("%s, after %d events:\n", own->wrong, length);
    while (length-- > 0) {
        const event *one = &own->all[path[length]].event;
        printf("  process %d %s\n", one->who, words[one->kind]);
    }
}

/* From every scene a group of all that live can still form. */
static void mark_ends(exploration *own) {
    for (uint32_t i = 0; i < own->count; i++)
        own->all[i].ends = ends_well(&own->all[i].now, own->players);
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t i = own->edges; i-- > 0;) {
            if (own->all[own->from[i]].ends || !own->all[own->to[i]].ends) continue;
            own->all[own->from[i]].ends = changed = true;
        }
    }
    for (uint32_t i = 0; own->wrong == NULL && i < own->count; i++) {
        if (own->all[i].ends) continue;
        own->wrong = "somebody waits for ever";
        print_order(own, i);
    }
}

typedef struct plan {
    int members, newcomers, deaths, hurries;
    bool spoils;
} plan;

static scene first_scene(const plan *one) {
    scene now;
    memset(&now, 0, sizeof now);
    now.members[0] = (uint8_t)((1 << one->members) - 1);
    now.deaths = (uint8_t)one->deaths;
    now.hurries = (uint8_t)one->hurries;
    for (int i = 0; i < one->members + one->newcomers; i++) {
        bool member = i < one->members;
        now.players[i] = (player){.alive = true, .was_member = member};
        now.players[i].wants = now.players[i].since = member;
        lay_out(&now, one->members);
        begin(&now, i, 1);
    }
    return now;
}

/* Returns what is wrong; NULL: nothing. */
static const char *explore(const plan *one) {
    exploration own = {.players = one->members + one->newcomers,
                       .patient = one->hurries == 0,
                       .spoils = one->spoils};
    scene first = first_scene(one);
    bool is_new;
    own.all = calloc(STATES, sizeof *own.all);
    own.index = calloc((size_t)2 * STATES, sizeof *own.index);
    assert_true(own.all != NULL && own.index != NULL);
    find(&own, &first, &is_new);
    for (uint32_t at = 0; at < own.count && own.wrong == NULL; at++)
        for (int kind = STEPS; kind <= HURRIES; kind++)
            for (int who = 0; who < own.players && own.wrong == NULL; who++)
                explore_from(&own, at, (event){(event_kind)kind, who});
    if (own.wrong != NULL)
        print_order(&own, own.count - 1);
    else
        mark_ends(&own);
    printf("%d members, %d newcomers, %d deaths, %d lose patience: %u scenes, %u steps\n",
           one->members, one->newcomers, one->deaths, one->hurries, own.count, own.edges);
    free(own.all);
    free(own.index);
    free(own.from);
    free(own.to);
    return own.wrong;
}

static void every_order_forms_one_group(void **state) {
    (void)state;
    static const plan plans[] = {
        {.members = 2},
        {.members = 2, .deaths = 1},
        {.members = 2, .newcomers = 1},
        {.members = 2, .newcomers = 1, .deaths = 1},
        {.members = 2, .newcomers = 1, .deaths = 2},
        {.members = 3},
        {.members = 3, .deaths = 1},
        {.members = 3, .deaths = 2},
        {.members = 2, .hurries = 1},
        {.members = 3, .hurries = 1},
        {.members = 3, .deaths = 1, .hurries = 1},
    };
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
        assert_null(explore(&plans[i]));
}

static void a_planted_fault_is_found(void **state) {
    (void)state;
    const plan spoiled = {.members = 3, .deaths = 1, .spoils = true};
    const char *wrong = explore(&spoiled);
    assert_non_null(wrong);
    assert_string_equal(wrong, "a generation has two groups of members");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_order_forms_one_group),
        cmocka_unit_test(a_planted_fault_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
