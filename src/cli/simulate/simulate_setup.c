/* Reads a profile and the links, and says what they are. */
#include "cli/simulate/simulate_setup.h"

#include <string.h>

#define DEFAULT_LINK "pcie4"

static yoke_status read_topology(simulate_setup *setup, const simulate_flags *flags) {
    yoke_topology *topology = &setup->topology;
    const yoke_link *nic = &topology->nic;
    char link[YOKE_LINK_BYTES];
    topology->per_node = flags->per_node;
    TRY(yoke_link_parse(&topology->link, flags->link != NULL ? flags->link : DEFAULT_LINK));
    int length = snprintf(setup->link_text, sizeof setup->link_text, "%s%s",
                          yoke_link_describe(&topology->link, link),
                          flags->link == NULL ? " (" DEFAULT_LINK ", assumed)" : "");
    if (flags->nic == NULL) return YOKE_OK;
    if (flags->per_node == 0)
        return cli_refuse(YOKE_ERROR_ARGUMENT,
                          "--nic %s: without --devices-per-node all devices are in one node",
                          flags->nic);
    TRY(yoke_link_parse(&topology->nic, flags->nic));
    snprintf(setup->link_text + length, sizeof setup->link_text - (size_t)length,
             "; node %g GB/s, %g us", nic->bytes_per_ns, nic->latency_ns / 1e3);
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

yoke_status simulate_setup_read(simulate_setup *setup, const simulate_flags *flags,
                                const char *path) {
    *setup = (simulate_setup){0};
    TRY(read_topology(setup, flags));
    TRY(yoke_profile_read(&setup->profile, path));
    return check_profile(&setup->profile, flags, path);
}

/* A file's texts must not steer a terminal. */
static void print_fact(FILE *out, const char *name, const char *text) {
    fprintf(out, "%-8s ", name);
    cli_print_text(out, text, 0);
    fputc('\n', out);
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
}

double simulate_rows_per_second(const yoke_profile *profile, const yoke_simulation *found) {
    return 1e9 * profile->rows * found->devices / (double)found->step_ns;
}
