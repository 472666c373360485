/* SPDX-License-Identifier: Apache-2.0 */
/* The one order in which Yoke adds what several contributors give: a balanced binary tree over
 * them. The left subtree has the largest power of two of them that leaves some for the right one:
 * ((0 + 1) + (2 + 3)) + 4. The tree over 2N contributors is thus that over N pairs, which is how
 * the sum over shards does not depend on the number of devices that hold them. */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include <stddef.h>

/* How many of `count` >= 2 contributors the left subtree has. */
static inline int yoke_tree_left(int count) {
    int left = 1;
    while (2 * left < count)
        left *= 2;
    return left;
}

#define YOKE_TREE_LEVELS 10 /* of a tree over 1024 contributors */

/* The same where each contributor stands for a subtree: sizes[count] are powers of two, and so is
 * their sum. NULL: they are alike. */
static inline int yoke_tree_split(const int *sizes, int count) {
    int whole = 0, left = 0, sum = 0;
    if (sizes == NULL) return yoke_tree_left(count);
    for (int i = 0; i < count; i++)
        whole += sizes[i];
    while (sum < whole / 2)
        sum += sizes[left++];
    return left;
}

/* The sum of no values is 0. */
static inline double yoke_tree_sum(const double *values, int count) {
    if (count < 2) return count < 1 ? 0 : values[0];
    int left = yoke_tree_left(count);
    return yoke_tree_sum(values, left) + yoke_tree_sum(values + left, count - left);
}

#endif
