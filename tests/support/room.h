/* SPDX-License-Identifier: Apache-2.0 */
/* Included before each test file of a folder's program: its main becomes one of many, which takes
 * no arguments. */
#define main(...)                                                                                  \
    YOKE_TEST_MAIN(void);                                                                          \
    int YOKE_TEST_MAIN(__VA_ARGS__)
