/* SPDX-License-Identifier: Apache-2.0 */
#include "train/eigenvectors.h"

#include <math.h>

#define SWEEPS 100 /* ten are enough for any matrix that was ever seen */

static double rest_of(const double *matrix, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            sum += matrix[i * n + j] * matrix[i * n + j];
    return sum;
}

static double diagonal_of(const double *matrix, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += matrix[i * n + i] * matrix[i * n + i];
    return sum;
}

/* Turns two rows, or columns, `step` being the way from one element to the next. */
static void turn(double *a, double *b, size_t n, size_t step, double cosine, double sine) {
    for (size_t i = 0; i < n; i++) {
        double x = a[i * step], y = b[i * step];
        a[i * step] = cosine * x - sine * y;
        b[i * step] = sine * x + cosine * y;
    }
}

/* Makes matrix[p, q] 0: Golub and Van Loan, Matrix Computations, section 8.5.2. */
static void rotate(double *matrix, double *vectors, size_t n, size_t p, size_t q) {
    double beside = matrix[p * n + q];
    if (beside == 0) return;
    double theta = (matrix[q * n + q] - matrix[p * n + p]) / (2 * beside);
    double tangent = copysign(1, theta) / (fabs(theta) + sqrt(1 + theta * theta));
    double cosine = 1 / sqrt(1 + tangent * tangent), sine = tangent * cosine;
    turn(matrix + p * n, matrix + q * n, n, 1, cosine, sine);
    turn(matrix + p, matrix + q, n, n, cosine, sine);
    turn(vectors + p * n, vectors + q * n, n, 1, cosine, sine);
    matrix[p * n + q] = matrix[q * n + p] = 0;
}

static void exchange(double *a, double *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double kept = a[i];
        a[i] = b[i];
        b[i] = kept;
    }
}

static void sort(double *matrix, size_t n, double *vectors) {
    for (size_t i = 0; i < n; i++) {
        size_t largest = i;
        for (size_t k = i + 1; k < n; k++)
            if (matrix[k * n + k] > matrix[largest * n + largest]) largest = k;
        if (largest == i) continue;
        exchange(&matrix[i * n + i], &matrix[largest * n + largest], 1);
        exchange(vectors + i * n, vectors + largest * n, n);
    }
}

void yoke_eigenvectors(double *matrix, size_t n, double *vectors) {
    for (size_t i = 0; i < n * n; i++)
        vectors[i] = i % (n + 1) == 0;
    for (int i = 0; i < SWEEPS && rest_of(matrix, n) > 1e-30 * diagonal_of(matrix, n); i++)
        for (size_t p = 0; p < n; p++)
            for (size_t q = p + 1; q < n; q++)
                rotate(matrix, vectors, n, p, q);
    sort(matrix, n, vectors);
}
