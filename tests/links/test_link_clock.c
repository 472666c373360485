/* SPDX-License-Identifier: Apache-2.0 */
/* The clock of modelled links by itself: the formulas of docs/ddp.md, and texts of links. */
#include "links/links.h"
#include "support/engine_check.h"

#define EXPECT_REFUSED(text, ...)                                                                  \
    do {                                                                                           \
        const char *words_[] = {__VA_ARGS__};                                                      \
        expect_refused(text, words_, sizeof words_ / sizeof *words_);                              \
    } while (0)

enum { MB = 1000000, US = 1000 };

static yoke_links *links_of(const char *text, int devices) {
    yoke_link link;
    yoke_links *links = NULL;
    EXPECT_OK(yoke_link_parse(&link, text));
    EXPECT_OK(yoke_links_create(&links, &link, devices));
    return links;
}

/* 1 GB/s: a megabyte takes 1000 us. */
static void transfers_share_a_direction_and_nothing_else(void **state) {
    (void)state;
    yoke_links *links = links_of("1,5", 4);
    uint64_t now = 1000 * US;
    assert_int_equal(yoke_links_transfer(links, 0, 1, MB, now), 2005 * US);
    assert_int_equal(yoke_links_transfer(links, 0, 2, MB, now), 3005 * US); /* out of 0 */
    assert_int_equal(yoke_links_transfer(links, 3, 0, MB, now), 2005 * US); /* full duplex */
    assert_int_equal(yoke_links_transfer(links, 1, 0, MB, now), 3005 * US); /* into 0 */
    assert_int_equal(yoke_links_transfer(links, 1, 3, MB, now), 4005 * US); /* out of 1 */
    assert_int_equal(yoke_links_transfer(links, 2, 3, 0, 9000 * US), 9005 * US);
    yoke_links_destroy(links);
}

static void transfers_share_a_bridge(void **state) {
    (void)state;
    yoke_links *links = links_of("1,5,bridge", 4);
    assert_int_equal(yoke_links_transfer(links, 0, 1, MB, 0), 1005 * US);
    assert_int_equal(yoke_links_transfer(links, 2, 3, MB, 0), 2005 * US);
    yoke_links_destroy(links);
    links = links_of("1,5,switch", 4);
    assert_int_equal(yoke_links_transfer(links, 0, 1, MB, 0), 1005 * US);
    assert_int_equal(yoke_links_transfer(links, 2, 3, MB, 0), 1005 * US);
    yoke_links_destroy(links);
}

/* (N - 1) alpha + n / beta; (N - 1) (alpha + n / (N beta)); through a bridge (N - 1) (alpha + n /
 * beta). */
static void collectives_take_their_formulas(void **state) {
    (void)state;
    yoke_links *links = links_of("1,5", 4);
    assert_int_equal(yoke_links_collective(links, YOKE_ROUTE_CHAIN, YOKE_HALF_SUM, MB, 0),
                     15 * US + 1000 * US);
    assert_int_equal(yoke_links_collective(links, YOKE_ROUTE_RING, YOKE_HALF_SUM, MB, 0),
                     1015 * US + 3 * 255 * US); /* all links busy */
    assert_int_equal(yoke_links_collective(links, YOKE_ROUTE_RING, YOKE_HALF_SUM, MB, 5000 * US),
                     5765 * US);
    yoke_links_destroy(links);
    links = links_of("1,5,bridge", 4);
    assert_int_equal(yoke_links_collective(links, YOKE_ROUTE_CHAIN, YOKE_HALF_SUM, MB, 0),
                     3015 * US);
    assert_int_equal(yoke_links_collective(links, YOKE_ROUTE_RING, YOKE_HALF_SUM, MB, 10000 * US),
                     13015 * US);
    yoke_links_destroy(links);
}

/* Of 8 devices: all in one node, or 4 in each of 2. */
static uint64_t collective_of(yoke_route route, int per_node, const char *nic) {
    yoke_links *links = links_of("1,5", 8);
    yoke_link card;
    EXPECT_OK(yoke_link_parse(&card, nic));
    if (per_node < 8) yoke_links_set_nodes(links, per_node, &card);
    uint64_t end = yoke_links_collective(links, route, YOKE_HALF_SUM, MB, 0);
    yoke_links_destroy(links);
    return end;
}

static void collectives_between_nodes_take_their_formulas(void **state) {
    (void)state;
    assert_int_equal(collective_of(YOKE_ROUTE_TREE, 8, "1,5"), 3 * 5 * US + 1000 * US);
    assert_int_equal(collective_of(YOKE_ROUTE_TREE, 4, "0.5,20"), 2 * 5 * US + 20 * US + 2000 * US);
    assert_int_equal(collective_of(YOKE_ROUTE_TREE, 4, "2,20"), 2 * 5 * US + 20 * US + 1000 * US);
    assert_int_equal(collective_of(YOKE_ROUTE_TREE, 1, "2,20"), 3 * 20 * US + 500 * US);
    assert_int_equal(collective_of(YOKE_ROUTE_HIERARCHICAL, 8, "1,5"),
                     collective_of(YOKE_ROUTE_RING, 8, "1,5"));
    assert_int_equal(collective_of(YOKE_ROUTE_HIERARCHICAL, 4, "0.5,20"),
                     3 * (5 + 250) * US + (20 + 1000) * US);
    assert_int_equal(collective_of(YOKE_ROUTE_RING, 4, "0.5,20"), 7 * (20 + 250) * US);
    assert_int_equal(collective_of(YOKE_ROUTE_RING, 4, "2,0"), 7 * (5 + 125) * US);
    assert_int_equal(collective_of(YOKE_ROUTE_RING, 1, "2,0"), 7 * 62.5 * US);
    assert_int_equal(collective_of(YOKE_ROUTE_HIERARCHICAL, 1, "2,0"), 7 * 62.5 * US);
}

static void expect_carried(yoke_links *links, int device, uint64_t sent, uint64_t received) {
    yoke_link_bytes carried = yoke_links_take(links, device);
    assert_int_equal(carried.sent, sent);
    assert_int_equal(carried.received, received);
}

/* docs/ddp.md, "How many bytes move". */
static void links_count_what_they_carry(void **state) {
    (void)state;
    const size_t shards[] = {0, MB, 2 * MB, 0};
    uint64_t ends_ns[4];
    yoke_links *links = links_of("1,5", 4);
    (void)yoke_links_root_stage(links, false, shards, 0, ends_ns);
    expect_carried(links, 0, 3 * MB, 0);
    expect_carried(links, 2, 0, 2 * MB);
    expect_carried(links, 3, 0, 0);
    expect_carried(links, 0, 0, 0); /* taken */
    (void)yoke_links_root_stage(links, true, shards, 0, ends_ns);
    expect_carried(links, 0, 0, 3 * MB);
    expect_carried(links, 1, MB, MB); /* and what the first stage left */
    (void)yoke_links_collective(links, YOKE_ROUTE_CHAIN, YOKE_HALF_SUM, MB, 0);
    expect_carried(links, 0, 0, MB);
    expect_carried(links, 3, MB, 0);
    (void)yoke_links_collective(links, YOKE_ROUTE_CHAIN, YOKE_HALF_PUBLISH, MB, 0);
    expect_carried(links, 0, MB, 0);
    expect_carried(links, 3, 0, MB);
    expect_carried(links, 1, 2 * MB, 2 * MB);
    (void)yoke_links_collective(links, YOKE_ROUTE_RING, YOKE_HALF_SUM, MB, 0);
    (void)yoke_links_collective(links, YOKE_ROUTE_RING, YOKE_HALF_PUBLISH, MB, 0);
    for (int k = 0; k < 2; k++)
        expect_carried(links, k, 2 * 750000, 2 * 750000);
    (void)yoke_links_collective(links, YOKE_ROUTE_TREE, YOKE_HALF_SUM, MB, 0);
    (void)yoke_links_collective(links, YOKE_ROUTE_HIERARCHICAL, YOKE_HALF_SUM, MB, 0);
    expect_carried(links, 3, 4 * 750000, 4 * 750000); /* with the ring's, which nobody took */
    yoke_links_destroy(links);
}

static void presets_are_ordered_as_their_generations(void **state) {
    (void)state;
    const char *const names[] = {"pcie3", "pcie4", "pcie5", "nvlink2", "nvlink3", "nvlink4"};
    double before = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        yoke_link link;
        EXPECT_OK(yoke_link_parse(&link, names[i]));
        assert_true(link.bytes_per_ns > before && link.latency_ns > 0 && !link.bridge);
        before = link.bytes_per_ns;
    }
}

static void expect_refused(const char *text, const char *const *words, size_t count) {
    yoke_link link;
    yoke_status status = yoke_link_parse(&link, text);
    if (status != YOKE_ERROR_ARGUMENT) fail_msg("'%s': %s", text, yoke_status_name(status));
    for (size_t i = 0; i < count; i++)
        if (strstr(yoke_last_error(), words[i]) == NULL)
            fail_msg("'%s': \"%s\" lacks \"%s\"", text, yoke_last_error(), words[i]);
}

static void impossible_links_are_refused(void **state) {
    (void)state;
    EXPECT_REFUSED("0,5", "bandwidth of 0", "possible");
    EXPECT_REFUSED("-1,5", "bandwidth of -1");
    EXPECT_REFUSED("nan,5", "bandwidth of nan");
    EXPECT_REFUSED("inf,5", "bandwidth of inf");
    EXPECT_REFUSED("1e300,5", "bandwidth of 1e300");
    EXPECT_REFUSED("12x,5", "bandwidth of 12x");
    EXPECT_REFUSED("12,-5", "latency of -5");
    EXPECT_REFUSED("12,nan", "latency of nan");
    EXPECT_REFUSED("12,1e7", "latency of 1e7");
    EXPECT_REFUSED("12", "pcie3", "GB/s and microseconds");
    EXPECT_REFUSED("", "pcie3");
    EXPECT_REFUSED(",5", "pcie3");
    EXPECT_REFUSED("pcie3,", "pcie3");
    EXPECT_REFUSED("12,", "pcie3");
    EXPECT_REFUSED("pci3", "did you mean 'pcie3'?");
    EXPECT_REFUSED("nvlink5", "did you mean 'nvlink");
    EXPECT_REFUSED("infiniband", "infiniband", "pcie3");
    EXPECT_REFUSED("pcie3,brigde", "did you mean 'bridge'?");
    EXPECT_REFUSED("pcie3,torus", "switch or ,bridge");
    EXPECT_REFUSED("12,5,switch,bridge", "switch or ,bridge");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_share_a_direction_and_nothing_else),
        cmocka_unit_test(transfers_share_a_bridge),
        cmocka_unit_test(collectives_take_their_formulas),
        cmocka_unit_test(collectives_between_nodes_take_their_formulas),
        cmocka_unit_test(links_count_what_they_carry),
        cmocka_unit_test(presets_are_ordered_as_their_generations),
        cmocka_unit_test(impossible_links_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
