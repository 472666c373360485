/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the devices of this machine and lets them copy. */
#include "cli/simulate/found_link.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define TRIES 5

/* The first device's; "" without one. */
static yoke_device_info describe_first(const yoke_devices *devices) {
    yoke_device_info info = {.struct_size = sizeof info};
    if (yoke_devices_describe(devices, 0, &info) != YOKE_OK) info.description[0] = '\0';
    return info;
}

static bool begins(const char *text, const char *start) {
    return start[0] != '\0' && strncmp(text, start, strlen(start)) == 0;
}

bool found_processor(const char *profiled) {
    yoke_devices *devices = NULL;
    yoke_devices_options one = {.struct_size = sizeof one, .list = "1xcpu", .threads = 1};
    bool found = yoke_devices_open(&devices, &one) == YOKE_OK &&
                 begins(profiled, describe_first(devices).description);
    yoke_devices_close(devices);
    return found;
}

/* The best of a few: other programs only make copies longer. */
static yoke_status measure_pair(yoke_link *link, const yoke_devices *devices, int from, int to) {
    *link = (yoke_link){.latency_ns = INFINITY};
    for (int i = 0; i < TRIES; i++) {
        yoke_peer_info peer = {.struct_size = sizeof peer};
        yoke_status status = yoke_devices_peer(devices, from, to, &peer);
        if (status != YOKE_OK) return status;
        link->bytes_per_ns = fmax(link->bytes_per_ns, 1e-9 * peer.bytes_per_second);
        link->latency_ns = fmin(link->latency_ns, 1e9 * peer.latency_seconds);
    }
    return YOKE_OK;
}

static yoke_status measure(yoke_link *link, const yoke_devices *devices) {
    int count = yoke_devices_count(devices);
    *link = (yoke_link){.bytes_per_ns = INFINITY};
    for (int k = 0; k < count; k++) {
        yoke_link pair;
        yoke_status status = measure_pair(&pair, devices, k, (k + 1) % count);
        if (status != YOKE_OK) return status;
        link->bytes_per_ns = fmin(link->bytes_per_ns, pair.bytes_per_ns);
        link->latency_ns = fmax(link->latency_ns, pair.latency_ns);
    }
    return YOKE_OK;
}

static yoke_status find(yoke_link *link, const yoke_devices *devices, const char *profiled) {
    yoke_device_info first = describe_first(devices);
    if (!begins(profiled, first.description))
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--link auto: the profile is of '%s', and this machine has '%s'; state "
                          "the link",
                          profiled, first.description);
    if (yoke_devices_count(devices) < 2)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--link auto: this machine has one GPU, so no link; state one");
    return measure(link, devices);
}

yoke_status found_link(yoke_link *link, const char *profiled, char *origin, size_t size) {
    bool cpu = found_processor(profiled);
    yoke_devices *devices = NULL;
    yoke_devices_options options = {
        .struct_size = sizeof options, .list = cpu ? "2xcpu" : "auto", .threads = 1};
    yoke_status status = yoke_devices_open(&devices, &options);
    if (status == YOKE_OK) status = find(link, devices, profiled);
    link->bridge = cpu;
    snprintf(origin, size, " (measured: %s of this machine)",
             cpu ? "copies in the memory" : "the slowest copies between GPUs");
    yoke_devices_close(devices);
    return status;
}
