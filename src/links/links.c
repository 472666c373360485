/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of modelled links: presets, when each direction of each link is free again, and how
 * long a collective takes. */
#include "links/links.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIELD_BYTES = 32 };

/* PCIe: 16 lanes of 8, 16 and 32 GT/s in 128b/130b coding (PCI Express Base Specification 3.0, 4.0,
 * 5.0) are 15.75, 31.5 and 63 GB/s, of which large copies between GPUs reach about 78 %. NVLink:
 * all links of a V100, an A100 and an H100, each direction, which are half of the 300, 600 and 900
 * GB/s in NVIDIA's white papers of these GPUs. The latencies are of the right order, and no
 * measurements. */
static const struct {
    const char *name;
    double gigabytes_per_second, microseconds;
} presets[] = {{"pcie3", 12.3, 5},  {"pcie4", 24.6, 5},  {"pcie5", 49, 5},
               {"nvlink2", 150, 3}, {"nvlink3", 300, 3}, {"nvlink4", 450, 3}};

static const char *const topologies[] = {"switch", "bridge"};

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define SLOWEST 1e-6 /* GB/s */
#define FASTEST 1e6
#define LONGEST 1e6 /* us */

struct yoke_links {
    yoke_link link;
    int devices, per_node;
    yoke_link nic; /* of each node, where there are several */
    uint64_t bridge_free_ns;
    uint64_t *out_free_ns, *in_free_ns; /* [devices] */
    yoke_link_bytes *carried;           /* [devices]: not taken yet */
};

/* Parsing. */

/* Copies what lies before the next comma; false: it is empty or too long. *rest: what lies behind
 * the comma, or NULL. */
static bool next_field(const char **rest, char field[FIELD_BYTES]) {
    size_t length = strcspn(*rest, ",");
    const char *comma = *rest + length;
    if (length == 0 || length >= FIELD_BYTES) return false;
    memcpy(field, *rest, length);
    field[length] = '\0';
    *rest = *comma == ',' ? comma + 1 : NULL;
    return true;
}

static yoke_status malformed(const char *text) {
    return FAIL(YOKE_ERROR_ARGUMENT,
                "link '%s': pcie3, pcie4, pcie5, nvlink2, nvlink3 or nvlink4, or GB/s and "
                "microseconds, as in 12.5,3; then perhaps ,switch or ,bridge",
                text);
}

static yoke_status unknown(const char *text, const char *word, const char *const *names,
                           size_t count) {
    const char *near = yoke_text_nearest(word, names, count);
    if (near == NULL) return malformed(text);
    return FAIL(YOKE_ERROR_ARGUMENT, "link '%s': '%s' is unknown; did you mean '%s'?", text, word,
                near);
}

static yoke_status parse_preset(yoke_link *link, const char *text, const char *word) {
    const char *names[COUNT(presets)];
    for (size_t i = 0; i < COUNT(presets); i++) {
        names[i] = presets[i].name;
        if (strcmp(word, names[i]) != 0) continue;
        link->bytes_per_ns = presets[i].gigabytes_per_second;
        link->latency_ns = 1e3 * presets[i].microseconds;
        return YOKE_OK;
    }
    return unknown(text, word, names, COUNT(presets));
}

static yoke_status parse_numbers(yoke_link *link, const char *text, const char *rate,
                                 const char **rest) {
    char latency[FIELD_BYTES];
    double microseconds;
    if (!yoke_text_real(rate, SLOWEST, FASTEST, &link->bytes_per_ns))
        return FAIL(YOKE_ERROR_ARGUMENT, "link '%s': a bandwidth of %s GB/s; %g to %g is possible",
                    text, rate, SLOWEST, FASTEST);
    if (*rest == NULL || !next_field(rest, latency)) return malformed(text);
    if (!yoke_text_real(latency, 0, LONGEST, &microseconds))
        return FAIL(YOKE_ERROR_ARGUMENT,
                    "link '%s': a latency of %s microseconds; 0 to %g is possible", text, latency,
                    LONGEST);
    link->latency_ns = 1e3 * microseconds;
    return YOKE_OK;
}

static yoke_status parse_topology(yoke_link *link, const char *text, const char *rest) {
    if (strcmp(rest, "switch") != 0 && strcmp(rest, "bridge") != 0)
        return unknown(text, rest, topologies, COUNT(topologies));
    link->bridge = strcmp(rest, "bridge") == 0;
    return YOKE_OK;
}

/* "nan" and "inf" are bad numbers, not presets. */
static bool is_number(const char *word) {
    char *end;
    (void)strtod(word, &end);
    return *end == '\0' || strchr("0123456789+-.", word[0]) != NULL;
}

yoke_status yoke_link_parse(yoke_link *link, const char *text) {
    char first[FIELD_BYTES];
    const char *rest = text;
    *link = (yoke_link){0};
    if (!next_field(&rest, first)) return malformed(text);
    TRY(is_number(first) ? parse_numbers(link, text, first, &rest)
                         : parse_preset(link, text, first));
    return rest != NULL ? parse_topology(link, text, rest) : YOKE_OK;
}

const char *yoke_link_describe(const yoke_link *link, char text[YOKE_LINK_BYTES]) {
    snprintf(text, YOKE_LINK_BYTES, "%.4g GB/s, %.4g us, %s", link->bytes_per_ns,
             link->latency_ns / 1e3, link->bridge ? "bridge" : "switch");
    return text;
}

/* Life. */

yoke_status yoke_links_create(yoke_links **links, const yoke_link *link, int devices) {
    size_t count = (size_t)devices, bytes = sizeof **links + 4 * count * sizeof(uint64_t);
    yoke_links *created = *links = yoke_calloc(1, sizeof *created);
    if (created == NULL) return FAIL_MEMORY(bytes, "links");
    created->link = *link;
    created->devices = created->per_node = devices;
    created->out_free_ns = yoke_calloc(count, sizeof(uint64_t));
    created->in_free_ns = yoke_calloc(count, sizeof(uint64_t));
    created->carried = yoke_calloc(count, sizeof *created->carried);
    if (created->out_free_ns != NULL && created->in_free_ns != NULL && created->carried != NULL)
        return YOKE_OK;
    yoke_links_destroy(created);
    *links = NULL;
    return FAIL_MEMORY(bytes, "links");
}

void yoke_links_destroy(yoke_links *links) {
    if (links == NULL) return;
    yoke_free(links->carried);
    yoke_free(links->in_free_ns);
    yoke_free(links->out_free_ns);
    yoke_free(links);
}

/* Time. */

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

uint64_t yoke_links_span(const yoke_links *links, size_t bytes) {
    return (uint64_t)((double)bytes / links->link.bytes_per_ns);
}

uint64_t yoke_links_transfer(yoke_links *links, int from, int to, size_t bytes,
                             uint64_t earliest_ns) {
    uint64_t begin = earliest_ns + (uint64_t)links->link.latency_ns;
    begin = later(begin, later(links->out_free_ns[from], links->in_free_ns[to]));
    if (links->link.bridge) begin = later(begin, links->bridge_free_ns);
    uint64_t end = begin + yoke_links_span(links, bytes);
    links->out_free_ns[from] = links->in_free_ns[to] = end;
    if (links->link.bridge) links->bridge_free_ns = end;
    links->carried[from].sent += bytes;
    links->carried[to].received += bytes;
    return end;
}

uint64_t yoke_links_root_stage(yoke_links *links, bool to_root, const size_t *bytes,
                               uint64_t begin_ns, uint64_t *ends_ns) {
    uint64_t last_ns = begin_ns;
    for (int k = 1; k < links->devices; k++) {
        if (bytes[k] == 0) continue;
        ends_ns[k] =
            yoke_links_transfer(links, to_root ? k : 0, to_root ? 0 : k, bytes[k], begin_ns);
        last_ns = later(last_ns, ends_ns[k]);
    }
    return last_ns;
}

/* Collectives. */

void yoke_links_set_nodes(yoke_links *links, int devices_per_node, const yoke_link *nic) {
    links->per_node = devices_per_node;
    links->nic = *nic;
}

static int node_count(const yoke_links *links) {
    return (links->devices + links->per_node - 1) / links->per_node;
}

static double transfer_ns(const yoke_link *link, double bytes) {
    return link->latency_ns + bytes / link->bytes_per_ns;
}

/* Levels of a binary tree over so many. */
static int levels(int count) {
    int found = 0;
    while (count > 1 << found)
        found++;
    return found;
}

/* Where every device is a node, no transfer passes a link within one. */
static double ring_ns(const yoke_links *links, double bytes) {
    double part = bytes / links->devices, hop = transfer_ns(&links->link, part);
    if (node_count(links) > 1) {
        double card = transfer_ns(&links->nic, part);
        hop = links->per_node > 1 ? fmax(hop, card) : card;
    }
    return (links->devices - 1) * hop;
}

static double tree_ns(const yoke_links *links, double bytes) {
    int nodes = node_count(links);
    double rate = links->link.bytes_per_ns;
    double latency = levels(links->per_node) * links->link.latency_ns;
    if (nodes < 2) return latency + bytes / rate;
    if (links->per_node < 2) rate = links->nic.bytes_per_ns;
    return latency + levels(nodes) * links->nic.latency_ns +
           bytes / fmin(rate, links->nic.bytes_per_ns);
}

static double hierarchical_ns(const yoke_links *links, double bytes) {
    int nodes = node_count(links), inside = links->per_node;
    double ns = (inside - 1) * transfer_ns(&links->link, bytes / inside);
    return nodes < 2 ? ns : ns + (nodes - 1) * transfer_ns(&links->nic, bytes / nodes);
}

static double collective_ns(const yoke_links *links, yoke_route route, double bytes) {
    double hops = links->devices - 1;
    if (links->link.bridge) return hops * transfer_ns(&links->link, bytes);
    switch (route) {
    case YOKE_ROUTE_RING:
        return ring_ns(links, bytes);
    case YOKE_ROUTE_TREE:
        return tree_ns(links, bytes);
    case YOKE_ROUTE_HIERARCHICAL:
        return hierarchical_ns(links, bytes);
    default:
        return hops * links->link.latency_ns + bytes / links->link.bytes_per_ns;
    }
}

yoke_link_bytes yoke_links_take(yoke_links *links, int device) {
    yoke_link_bytes carried = links->carried[device];
    links->carried[device] = (yoke_link_bytes){0};
    return carried;
}

/* It begins when every link is free, and occupies all of them. */
uint64_t yoke_links_collective(yoke_links *links, yoke_route route, yoke_half half, size_t bytes,
                               uint64_t earliest_ns) {
    if (route == YOKE_ROUTE_CHAIN) {
        /* The ends of a chain pass nothing on: the root sends nothing to be summed and receives
         * nothing that is published, the last device the other way round. */
        int first = 0, last = links->devices - 1;
        for (int k = 0; k < links->devices; k++) {
            yoke_link_bytes *link = &links->carried[k];
            if (k != (half == YOKE_HALF_SUM ? first : last)) link->sent += bytes;
            if (k != (half == YOKE_HALF_SUM ? last : first)) link->received += bytes;
        }
    }
    if (route != YOKE_ROUTE_CHAIN) {
        uint64_t count = (uint64_t)links->devices, passed = bytes * (count - 1) / count;
        for (uint64_t k = 0; k < count; k++) {
            links->carried[k].sent += passed;
            links->carried[k].received += passed;
        }
    }
    uint64_t begin = later(earliest_ns, links->bridge_free_ns);
    for (int k = 0; k < links->devices; k++)
        begin = later(begin, later(links->out_free_ns[k], links->in_free_ns[k]));
    uint64_t end = begin + (uint64_t)collective_ns(links, route, (double)bytes);
    links->bridge_free_ns = end;
    for (int k = 0; k < links->devices; k++)
        links->out_free_ns[k] = links->in_free_ns[k] = end;
    return end;
}

void yoke_links_await(uint64_t until_ns) {
    struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                             .tv_nsec = (long)(until_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}
