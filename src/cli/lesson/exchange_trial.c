/* SPDX-License-Identifier: Apache-2.0 */
/* Every array lies between two pages that nobody may touch: once at the end of its pages, once at
 * their begin. Gradients are small integers, whose sums are exact in any order. */
#include "cli/lesson/exchange_trial.h"

#include <math.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
#include "links/links.h"

#define DEVICES 5 /* at most */
#define STACK ((size_t)1 << 16)

/* An array and the pages around it. */
typedef struct guarded {
    char *pages; /* with a guard on either side */
    size_t bytes;
    float *values;
    size_t count;
    int device;
    bool inbox;
} guarded;

static guarded arrays[2 * DEVICES];
static int array_count;
static exchange_trial *current;
static pid_t trying; /* the process of the trial */

static size_t page(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

static bool make_array(guarded *array, size_t count, bool at_end) {
    size_t inner = (count * sizeof(float) + page() - 1) / page() * page();
    array->bytes = inner + 2 * page();
    array->count = count;
    array->pages =
        mmap(NULL, array->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (array->pages == MAP_FAILED) return false;
    mprotect(array->pages, page(), PROT_NONE);
    mprotect(array->pages + page() + inner, page(), PROT_NONE);
    size_t slack = at_end ? inner - count * sizeof(float) : 0;
    array->values = (float *)(void *)(array->pages + page() + slack);
    return true;
}

static void drop_arrays(void) {
    for (int i = 0; i < array_count; i++)
        munmap(arrays[i].pages, arrays[i].bytes);
    array_count = 0;
}

/* What a wrong access was. In a handler: nothing but the shared text. */
static void name_access(const char *at) {
    for (int i = 0; i < array_count; i++) {
        const guarded *array = &arrays[i];
        if (at < array->pages || at >= array->pages + array->bytes) continue;
        bool behind = at >= (const char *)array->values;
        ptrdiff_t off = behind ? (at - (const char *)(array->values + array->count)) / 4 + 1
                               : ((const char *)array->values - at + 3) / 4;
        snprintf(current->wrong, TRIAL_TEXT, "%s: it uses an element %td %s device %d's %s",
                 current->doing, off, behind ? "behind the end of" : "before the begin of",
                 array->device, array->inbox ? "inbox" : "gradients");
        return;
    }
    snprintf(current->wrong, TRIAL_TEXT, "%s: it crashes: it uses memory at %p", current->doing,
             (const void *)at);
}

static void on_access(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)context;
    name_access(info->si_addr);
    _exit(1);
}

static void catch_accesses(void) {
    static char stack[STACK];
    stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_sigaction = on_access, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigaltstack(&own, NULL);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
}

/* One bucket. */
typedef struct bucket_case {
    int devices;
    size_t count;
    bool at_end;
    yoke_links *links;
    float *gradients[DEVICES], *inboxes[DEVICES];
} bucket_case;

static float value_of(int device, size_t i) {
    return (float)((i * 2654435761u >> 7) % 7) - 3 + (float)device;
}

static float sum_of(const bucket_case *one, size_t i) {
    float sum = 0;
    for (int k = 0; k < one->devices; k++)
        sum += value_of(k, i);
    return sum;
}

static bool fill(bucket_case *one) {
    for (int k = 0; k < one->devices; k++)
        for (int inbox = 0; inbox < 2; inbox++) {
            guarded *array = &arrays[array_count];
            array->device = k;
            array->inbox = inbox;
            if (!make_array(array, one->count, one->at_end)) return false;
            array_count++;
            (inbox ? one->inboxes : one->gradients)[k] = array->values;
        }
    for (int k = 0; k < one->devices; k++)
        for (size_t i = 0; i < one->count; i++) {
            one->gradients[k][i] = value_of(k, i);
            one->inboxes[k][i] = NAN;
        }
    return true;
}

static bool check_sums(const bucket_case *one) {
    for (int k = 0; k < one->devices; k++)
        for (size_t i = 0; i < one->count; i++) {
            if (one->gradients[k][i] == sum_of(one, i)) continue;
            snprintf(current->wrong, TRIAL_TEXT,
                     "%s: device %d's sums differ from element %zu on: %g in place of %g",
                     current->doing, k, i, (double)one->gradients[k][i], (double)sum_of(one, i));
            return false;
        }
    return true;
}

/* Each of 2 (N - 1) one-way messages that N devices need to know a sum of all carries every
 * element. */
static bool check_sent(const bucket_case *one, const yoke_wire *wire) {
    double least = 2.0 * (one->devices - 1) * (double)one->count;
    current->sent = (double)wire->elements / least;
    if ((double)wire->elements >= least) return true;
    snprintf(current->wrong, TRIAL_TEXT,
             "%s: it sends %llu elements, and a sum on %d devices takes at least %.0f: it reads "
             "another device's gradients without a send",
             current->doing, (unsigned long long)wire->elements, one->devices, least);
    return false;
}

static bool call(const bucket_case *one, const yoke_custom_exchange *exchange, yoke_wire *wire) {
    const yoke_bucket_gradients *view =
        yoke_wire_begin(wire, 0, one->count, one->gradients, one->inboxes, 0);
    yoke_status status = exchange->all_reduce(exchange->payload, view);
    if (getpid() != trying) _exit(1); /* the exchange has forked, and both return */
    const char *text = yoke_last_error();
    if (status == YOKE_OK) return true;
    snprintf(current->wrong, TRIAL_TEXT, "%s: it returns %s%s%.400s", current->doing,
             yoke_status_name(status), text[0] != '\0' ? ": " : "", text);
    return false;
}

/* *ms: on one->links. */
static bool try_case(bucket_case *one, const yoke_custom_exchange *exchange, double *ms) {
    yoke_wire *wire = NULL;
    snprintf(current->doing, TRIAL_CASE, "with %d devices and %zu element%s", one->devices,
             one->count, one->count == 1 ? "" : "s");
    bool right = yoke_wire_create(&wire, one->links, one->devices, one->count) == YOKE_OK;
    if (!right || !fill(one))
        snprintf(current->wrong, TRIAL_TEXT, "no memory for a trial");
    else
        right = call(one, exchange, wire) && check_sums(one) && check_sent(one, wire);
    if (ms != NULL && right) *ms = 1e-6 * (double)wire->end_ns;
    yoke_wire_destroy(wire);
    drop_arrays();
    current->cases++;
    return right && current->wrong[0] == '\0';
}

static bool try_sums(const yoke_custom_exchange *exchange) {
    static const size_t counts[] = {1, 2, 7, 64, 1000, 4097};
    for (int devices = 2; devices <= DEVICES; devices++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
            for (int at_end = 1; at_end >= 0; at_end--) {
                bucket_case one = {.devices = devices, .count = counts[i], .at_end = at_end};
                if (!try_case(&one, exchange, NULL)) return false;
            }
    return true;
}

/* Time. */

static double collective_ms(const yoke_link *link, yoke_route route, size_t bytes) {
    yoke_links *links = NULL;
    if (yoke_links_create(&links, link, TRIAL_DEVICES) != YOKE_OK) return (double)NAN;
    uint64_t end_ns = yoke_links_collective(links, route, YOKE_HALF_SUM, bytes, 0);
    end_ns = yoke_links_collective(links, route, YOKE_HALF_PUBLISH, bytes, end_ns);
    yoke_links_destroy(links);
    return 1e-6 * (double)end_ns;
}

static double root_ms(const yoke_link *link, size_t bytes) {
    yoke_links *links = NULL;
    size_t each[TRIAL_DEVICES];
    uint64_t ends_ns[TRIAL_DEVICES];
    if (yoke_links_create(&links, link, TRIAL_DEVICES) != YOKE_OK) return (double)NAN;
    for (int k = 0; k < TRIAL_DEVICES; k++)
        each[k] = bytes;
    uint64_t end_ns = yoke_links_root_stage(links, true, each, 0, ends_ns);
    end_ns = yoke_links_root_stage(links, false, each, end_ns, ends_ns);
    yoke_links_destroy(links);
    return 1e-6 * (double)end_ns;
}

static bool try_time(const yoke_custom_exchange *exchange) {
    yoke_link link;
    size_t bytes = TRIAL_COUNT * sizeof(float);
    bucket_case one = {.devices = TRIAL_DEVICES, .count = TRIAL_COUNT};
    if (yoke_link_parse(&link, TRIAL_LINK) != YOKE_OK ||
        yoke_links_create(&one.links, &link, TRIAL_DEVICES) != YOKE_OK)
        return false;
    current->ring_ms = collective_ms(&link, YOKE_ROUTE_RING, bytes);
    current->chain_ms = collective_ms(&link, YOKE_ROUTE_CHAIN, bytes);
    current->root_ms = root_ms(&link, bytes);
    bool right = try_case(&one, exchange, &current->own_ms);
    yoke_links_destroy(one.links);
    return right;
}

void exchange_trial_run(exchange_trial *trial, const yoke_custom_exchange *exchange) {
    current = trial;
    trying = getpid();
    catch_accesses();
    if (try_sums(exchange) && try_time(exchange)) trial->done = true;
}
