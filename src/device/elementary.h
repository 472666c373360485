/* SPDX-License-Identifier: Apache-2.0 */
/* Elementary functions: their formulas, once for every backend, and expressions of them, which an
 * ELEMENTWISE operation computes in one pass. A new function is a row here and a name in
 * yoke/elementary.h. */
#ifndef DEVICE_ELEMENTARY_H
#define DEVICE_ELEMENTARY_H

#include <stdbool.h>
#include <stdint.h>

/* ROW(NAME, name, arguments, linear, y, da, db, dc)
 * a, b, c: the arguments; p, q: the constants; y: the function's value; dy: its gradient; da, db,
 * dc: the gradients of the arguments. linear: the gradients read dy, p and q alone. REAL is the
 * type, FN(sqrt) the type's sqrt; the file that expands a row defines both. */
#define YOKE_ELEMENTARY(ROW)                                                                       \
    ROW(ADD, add, 2, true, a + b, dy, dy, 0)                                                       \
    ROW(SUBTRACT, subtract, 2, true, a - b, dy, -dy, 0)                                            \
    ROW(MULTIPLY, multiply, 2, false, a *b, dy *b, dy *a, 0)                                       \
    ROW(DIVIDE, divide, 2, false, a / b, dy / b, -dy * y / b, 0)                                   \
    ROW(MAXIMUM, maximum, 2, false, a > b || a != a ? a : b, a == b ? dy / 2 : (a > b ? dy : 0),   \
        a == b ? dy / 2 : (b > a ? dy : 0), 0)                                                     \
    ROW(MINIMUM, minimum, 2, false, a < b || a != a ? a : b, a == b ? dy / 2 : (a < b ? dy : 0),   \
        a == b ? dy / 2 : (b < a ? dy : 0), 0)                                                     \
    ROW(GREATER, greater, 2, true, a > b ? 1 : 0, 0, 0, 0)                                         \
    ROW(EQUAL, equal, 2, true, a == b ? 1 : 0, 0, 0, 0)                                            \
    ROW(WHERE, where, 3, false, a != 0 ? b : c, 0, a != 0 ? dy : 0, a != 0 ? 0 : dy)               \
    ROW(SCALE, scale, 1, true, p *a, p *dy, 0, 0)                                                  \
    ROW(OFFSET, offset, 1, true, a + p, dy, 0, 0)                                                  \
    ROW(NEGATE, negate, 1, true, -a, -dy, 0, 0)                                                    \
    ROW(ABS, abs, 1, false, FN(fabs)(a), a > 0 ? dy : (a < 0 ? -dy : 0), 0, 0)                     \
    ROW(SQUARE, square, 1, false, a *a, 2 * a * dy, 0, 0)                                          \
    ROW(POWER, power, 1, false, FN(pow)(a, p), p == 0 ? 0 : dy * p * FN(pow)(a, p - 1), 0, 0)      \
    ROW(SQRT, sqrt, 1, false, FN(sqrt)(a), dy / (2 * y), 0, 0)                                     \
    ROW(RSQRT, rsqrt, 1, false, 1 / FN(sqrt)(a), -dy * y / (2 * a), 0, 0)                          \
    ROW(EXP, exp, 1, false, FN(exp)(a), dy *y, 0, 0)                                               \
    ROW(LOG, log, 1, false, FN(log)(a), dy / a, 0, 0)                                              \
    ROW(SIN, sin, 1, false, FN(sin)(a), dy *FN(cos)(a), 0, 0)                                      \
    ROW(COS, cos, 1, false, FN(cos)(a), -dy *FN(sin)(a), 0, 0)                                     \
    ROW(ERF, erf, 1, false, FN(erf)(a), dy *(REAL)1.1283791670955126 * FN(exp)(-a * a), 0, 0)      \
    ROW(CLAMP, clamp, 1, false, a < p ? p : (a > q ? q : a), a >= p && a <= q ? dy : 0, 0, 0)      \
    ROW(SIGMOID, sigmoid, 1, false, 1 / (1 + FN(exp)(-a)), dy * y * (1 - y), 0, 0)                 \
    ROW(TANH, tanh, 1, false, FN(tanh)(a), dy *(1 - y * y), 0, 0)                                  \
    ROW(SOFTPLUS, softplus, 1, false, FN(fmax)(a, 0) + FN(log1p)(FN(exp)(-FN(fabs)(a))),           \
        dy / (1 + FN(exp)(-a)), 0, 0)                                                              \
    ROW(LEAKY_RELU, leaky_relu, 1, false, a > 0 ? a : p * a, a > 0 ? dy : p * dy, 0, 0)            \
    ROW(ELU, elu, 1, false, a > 0 ? a : p * FN(expm1)(a), a > 0 ? dy : dy * (y + p), 0, 0)         \
    ROW(HARD_SIGMOID, hard_sigmoid, 1, false, a <= -3 ? 0 : (a >= 3 ? 1 : a / 6 + (REAL)0.5),      \
        a > -3 && a < 3 ? dy / 6 : 0, 0, 0)

#define YOKE_ARGUMENTS 3 /* of a function, at most */
#define YOKE_EXPRESSION_INPUTS 4
#define YOKE_TERMS_LIMIT 16 /* of an expression, at most */

/* One function of an expression. Argument k < YOKE_EXPRESSION_INPUTS is input k; a larger one is
 * the value of term k - YOKE_EXPRESSION_INPUTS, which comes earlier. Arguments that the function
 * has not are 0. */
typedef struct yoke_term {
    uint8_t function; /* a yoke_function */
    uint8_t arguments[YOKE_ARGUMENTS];
    float p, q;
} yoke_term;

/* The last term is the value of the expression. */
typedef struct yoke_expression {
    int inputs, count;
    yoke_term terms[YOKE_TERMS_LIMIT];
} yoke_expression;

#endif
