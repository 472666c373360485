/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for tests in C++, where cmocka's jumps would leave objects behind. */
#ifndef TESTS_CPP_EXPECT_HPP
#define TESTS_CPP_EXPECT_HPP

#include <cstdio>

/* Ends the program with 1 where a condition does not hold. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

/* A statement throws an exception of this type. */
#define EXPECT_THROWS(type, ...)                                                                   \
    do {                                                                                           \
        bool thrown = false;                                                                       \
        try {                                                                                      \
            __VA_ARGS__;                                                                           \
        } catch (const type &) {                                                                   \
            thrown = true;                                                                         \
        }                                                                                          \
        EXPECT(thrown &&#type);                                                                    \
    } while (0)

#endif
