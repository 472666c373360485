/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a profile and the links, and says what they are. */
#include "cli/simulate/simulate_setup.h"

#include <string.h>
#include <unistd.h>

#include "cli/simulate/found_link.h"
#include "cli/simulate/published.h"

#define DEFAULT_LINK "pcie4"

/* As stated, as found on this machine, that of the machine whose throughput was published, or a
 * guess. */
static yoke_status read_link(simulate_setup *setup, const published *figures, const char *text) {
    yoke_link *link = &setup->topology.link;
    const char *otherwise = figures != NULL ? figures->link : DEFAULT_LINK;
    char origin[64] = "";
    if (text == NULL)
        snprintf(origin, sizeof origin, " (%s, %s)", otherwise,
                 figures != NULL ? "of the published machine" : "assumed");
    setup->found = text != NULL && strcmp(text, "auto") == 0;
    if (setup->found)
        TRY(found_link(link, setup->profile.device, origin, sizeof origin));
    else
        TRY(yoke_link_parse(link, text != NULL ? text : otherwise));
    char described[YOKE_LINK_BYTES];
    snprintf(setup->link_text, sizeof setup->link_text, "%s%s", yoke_link_describe(link, described),
             origin);
    return YOKE_OK;
}

static yoke_status read_nic(simulate_setup *setup, const simulate_flags *flags) {
    yoke_topology *topology = &setup->topology;
    const yoke_link *nic = &topology->nic;
    size_t length = strlen(setup->link_text);
    topology->per_node = flags->per_node;
    if (flags->nic == NULL) return YOKE_OK;
    if (flags->per_node == 0)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--nic %s: without --devices-per-node all devices are in one node",
                          flags->nic);
    TRY(yoke_link_parse(&topology->nic, flags->nic));
    snprintf(setup->link_text + length, sizeof setup->link_text - length, "; node %g GB/s, %g us",
             nic->bytes_per_ns, nic->latency_ns / 1e3);
    return YOKE_OK;
}

static yoke_status check_profile(const yoke_profile *profile, const simulate_flags *flags,
                                 const char *path) {
    if (flags->model != NULL && strcmp(flags->model, profile->model) != 0)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "%s is a profile of model '%s', not '%s'", path,
                          profile->model, flags->model);
    if (flags->device != NULL && strstr(profile->device, flags->device) == NULL)
        return cli_refuse(YOKE_ERROR_ARGUMENT, "%s is a profile of the device '%s', not '%s'", path,
                          profile->device, flags->device);
    return YOKE_OK;
}

static yoke_status refuse_name(const char *name) {
    const char *names[64], *near;
    size_t count = 0;
    for (const published *row; (row = published_at((int)count)) != NULL && count < 64;)
        names[count++] = row->name;
    near = yoke_text_nearest(name, names, count);
    if (near == NULL) near = names[0];
    return cli_refuse(YOKE_ERROR_ARGUMENT,
                      "'%s' is no file, and no profile of Yoke's is called so; 'yoke simulate "
                      "--list' names them: %s, say",
                      name, near);
}

/* A name of the table, or the path of a file. */
yoke_status simulate_setup_read(simulate_setup *setup, const simulate_flags *flags,
                                const char *name) {
    const published *figures = published_find(name);
    *setup = (simulate_setup){.published = figures != NULL};
    if (figures != NULL)
        TRY(published_profile(figures, &setup->profile));
    else if (strchr(name, ':') != NULL && access(name, F_OK) != 0)
        return refuse_name(name);
    else
        TRY(yoke_profile_read(&setup->profile, name));
    TRY(check_profile(&setup->profile, flags, name));
    if (flags->rows > 0) TRY(yoke_profile_set_rows(&setup->profile, flags->rows));
    double usual = figures != NULL ? PUBLISHED_SPREAD : 0;
    setup->topology.spread = flags->spread == NOT_STATED ? usual : flags->spread;
    TRY(read_link(setup, figures, flags->link));
    return read_nic(setup, flags);
}

/* A file's texts must not steer a terminal. */
static void print_fact(FILE *out, const char *name, const char *text) {
    fprintf(out, "%-8s ", name);
    cli_print_text(out, text, 0);
    fputc('\n', out);
}

void simulate_spread_text(const simulate_setup *setup, char *text, size_t size) {
    double spread = setup->topology.spread;
    bool fitted = setup->published && spread == PUBLISHED_SPREAD;
    text[0] = '\0';
    if (spread > 0)
        snprintf(text, size, "%g between devices%s; %s", spread,
                 fitted ? " (fitted to published machines)" : "",
                 setup->nobody_waits ? "nobody waits for another" : "all wait for the slowest");
}

void simulate_straggler_text(const simulate_setup *setup, char *text, size_t size) {
    const yoke_topology *topology = &setup->topology;
    text[0] = '\0';
    if (topology->straggler_factor > 0)
        snprintf(text, size, "device %d computes %g times as long", topology->straggler,
                 topology->straggler_factor);
}

void simulate_print_head(FILE *out, const simulate_setup *setup) {
    const yoke_profile *profile = &setup->profile;
    char text[3 * YOKE_PROFILE_TEXT_BYTES];
    snprintf(text, sizeof text, "%s, %d rows on each device, %s", profile->model, profile->rows,
             profile->precision);
    print_fact(out, "model", text);
    print_fact(out, "device", profile->device);
    print_fact(out, "source", profile->source);
    print_fact(out, "links", setup->link_text);
    simulate_spread_text(setup, text, sizeof text);
    if (text[0] != '\0') print_fact(out, "spread", text);
    simulate_straggler_text(setup, text, sizeof text);
    if (text[0] != '\0') print_fact(out, "slow", text);
}

double simulate_rows_per_second(const yoke_profile *profile, const yoke_simulation *found) {
    return 1e9 * profile->rows * found->devices / (double)found->step_ns;
}
