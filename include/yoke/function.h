/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * The functions of one element, the axes and the reductions of elementary operations
 * (yoke/elementary.h).
 */
#ifndef YOKE_FUNCTION_H
#define YOKE_FUNCTION_H

#include "yoke/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** A function of one element: a, b, c are its arguments, p and q its constants. Gradients are
 * PyTorch's, also where a function has a corner. */
typedef enum yoke_function {
    YOKE_FN_ADD,        /**< a + b. */
    YOKE_FN_SUBTRACT,   /**< a - b. */
    YOKE_FN_MULTIPLY,   /**< a * b. */
    YOKE_FN_DIVIDE,     /**< a / b. */
    YOKE_FN_MAXIMUM,    /**< The larger of a and b; where they are equal, half the gradient each. */
    YOKE_FN_MINIMUM,    /**< The smaller of a and b; likewise. */
    YOKE_FN_GREATER,    /**< 1 where a > b, otherwise 0; no gradient. */
    YOKE_FN_EQUAL,      /**< 1 where a = b, otherwise 0; no gradient. */
    YOKE_FN_WHERE,      /**< b where a is not 0, otherwise c; a gets no gradient. */
    YOKE_FN_SCALE,      /**< p * a. */
    YOKE_FN_OFFSET,     /**< a + p. */
    YOKE_FN_NEGATE,     /**< -a. */
    YOKE_FN_ABS,        /**< |a|; the gradient is 0 at 0. */
    YOKE_FN_SQUARE,     /**< a * a. */
    YOKE_FN_POWER,      /**< a to the power of p. */
    YOKE_FN_SQRT,       /**< The square root of a. */
    YOKE_FN_RSQRT,      /**< 1 / the square root of a. */
    YOKE_FN_EXP,        /**< e to the power of a. */
    YOKE_FN_LOG,        /**< The natural logarithm of a. */
    YOKE_FN_SIN,        /**< The sine of a. */
    YOKE_FN_COS,        /**< The cosine of a. */
    YOKE_FN_ERF,        /**< The error function of a. */
    YOKE_FN_CLAMP,      /**< a, at least p and at most q; the gradient passes at the bounds. */
    YOKE_FN_SIGMOID,    /**< 1 / (1 + exp(-a)). */
    YOKE_FN_TANH,       /**< The hyperbolic tangent of a. */
    YOKE_FN_SOFTPLUS,   /**< log(1 + exp(a)). */
    YOKE_FN_LEAKY_RELU, /**< a where a > 0, otherwise p * a. */
    YOKE_FN_ELU,        /**< a where a > 0, otherwise p * (exp(a) - 1). */
    YOKE_FN_HARD_SIGMOID, /**< min(max(a / 6 + 1 / 2, 0), 1). */
    YOKE_FUNCTIONS        /**< Their number. */
} yoke_function;

/** Arguments of a function, at most. */
#define YOKE_FUNCTION_ARGUMENTS 3

/** The name of a function: "leaky_relu".
 *
 * @param function  Which one.
 * @return A static text; NULL: there is no such function.
 */
YOKE_API const char *yoke_function_name(yoke_function function);

/** The number of arguments of a function.
 *
 * @param function  Which one.
 * @return 1 to YOKE_FUNCTION_ARGUMENTS; 0: there is no such function.
 */
YOKE_API int yoke_function_arguments(yoke_function function);

/** An axis of a row; sets of axes are sums of them. */
typedef enum yoke_axis {
    YOKE_AXIS_CHANNELS = 1, /**< An image's channels, a position's features, a vector. */
    YOKE_AXIS_HEIGHT = 2,   /**< An image's height, a sequence's positions. */
    YOKE_AXIS_WIDTH = 4,    /**< An image's width. */
    YOKE_AXIS_ALL = 7       /**< Every axis. */
} yoke_axis;

/** How a reduction combines elements. */
typedef enum yoke_reduce_kind {
    YOKE_REDUCE_SUM,  /**< Their sum, added up in double on CPUs. */
    YOKE_REDUCE_MEAN, /**< Their mean; likewise. */
    YOKE_REDUCE_MAX   /**< The largest; equal ones share its gradient, as in torch.amax. */
} yoke_reduce_kind;

#ifdef __cplusplus
}
#endif

#endif
