/* SPDX-License-Identifier: Apache-2.0 */
/* GELU, by the normal distribution or by tanh (Hendrycks and Gimpel 2016): one pass over memory
 * each way, in loops that the compiler vectorises. */
#include "device/cpu/clones.h"
#include "device/cpu/functions.h"
#include "device/cpu/plain.h"

#define INLINE static inline __attribute__((always_inline))

enum { CHUNK = 8192 }; /* elements that a thread takes at a time */

/* P(X <= x) of the normal distribution, of `density` = e^(-x^2 / 2): for x <= 0 density / 2 * a
 * polynomial of 1 / (1 + 0.4 |x| / sqrt 2), the form of Abramowitz and Stegun 7.1.26 with a term
 * more and coefficients that make the largest error 2e-8. */
INLINE float probability(float x, float density) {
    float t = 1 / (1 + 0.28284271f * fabsf(x));
    float p = -1.9970457255840302e-1f;
    p = p * t + 7.071167230606079e-1f;
    p = p * t - 3.6801886558532715e-1f;
    p = p * t + 4.662962853908539e-1f;
    p = p * t + 1.6246449947357178e-1f;
    p = p * t + 2.3184597492218018e-1f;
    float below = 0.5f * density * (p * t);
    return x < 0 ? below : 1 - below;
}

INLINE float normal(float x) {
    return x * probability(x, cpu_exp_below_zero(-0.5f * x * x));
}

INLINE float normal_slope(float x) {
    float density = cpu_exp_below_zero(-0.5f * x * x);
    return probability(x, density) + x * (0.39894228f * density);
}

/* x / 2 * (1 + tanh(u)) is x * sigmoid(2 u). */
INLINE float twice_u(float x) {
    return x * (1.59576912f + 0.071354816f * x * x);
}

INLINE float tanh_like(float x) {
    float u = twice_u(x), e = cpu_exp_below_zero(-fabsf(u)), r = 1 / (1 + e);
    return x * (u < 0 ? e * r : r);
}

INLINE float tanh_like_slope(float x) {
    float u = twice_u(x), e = cpu_exp_below_zero(-fabsf(u)), r = 1 / (1 + e);
    float slope_of_u = 1.59576912f + 0.214064448f * x * x;
    return (u < 0 ? e * r : r) + x * slope_of_u * (e * r * r);
}

/* Elements begin .. end - 1 of one pass. */
typedef struct span {
    const void *input, *output_gradient;
    void *to;
    size_t begin, end;
} span;

#define FORWARD(function, half)                                                                    \
    _Pragma("omp simd") for (size_t i = s->begin; i < s->end; i++)                                 \
        cpu_store(s->to, i, half, function(cpu_load(s->input, i, half)));
#define BACKWARD(function, half)                                                                   \
    _Pragma("omp simd") for (size_t i = s->begin; i < s->end; i++)                                 \
        cpu_store(s->to, i, half,                                                                  \
                  cpu_load(s->output_gradient, i, half) * function(cpu_load(s->input, i, half)));

/* Which loop: */
enum { OF_TANH = 1, OF_HALF = 2, OF_SLOPE = 4 };

CPU_CLONES static void run_span(const span *s, int loop) {
    switch (loop) {
    case 0:
        FORWARD(normal, false) break;
    case OF_TANH:
        FORWARD(tanh_like, false) break;
    case OF_HALF:
        FORWARD(normal, true) break;
    case OF_TANH | OF_HALF:
        FORWARD(tanh_like, true) break;
    case OF_SLOPE:
        BACKWARD(normal_slope, false) break;
    case OF_SLOPE | OF_TANH:
        BACKWARD(tanh_like_slope, false) break;
    case OF_SLOPE | OF_HALF:
        BACKWARD(normal_slope, true) break;
    case OF_SLOPE | OF_TANH | OF_HALF:
        BACKWARD(tanh_like_slope, true) break;
    }
}

static void run_loop(const cpu_plain_plan *plan, void *to, int loop) {
    const yoke_plan_binding *at = &plan->base.binding;
    size_t elements = plan->base.rows * yoke_row_elements(plan->base.operation.output);
    int threads = plan->base.device->threads;
    if (plan->base.operation.activation == YOKE_GELU_TANH) loop |= OF_TANH;
    if (plan->half) loop |= OF_HALF;
#pragma omp parallel for num_threads(threads) if (cpu_is_parallel(threads, elements))
    for (size_t first = 0; first < elements; first += CHUNK) {
        size_t end = first + CHUNK < elements ? first + CHUNK : elements;
        run_span(&(span){at->inputs[0], at->output_gradient, to, first, end}, loop);
    }
}

static void gelu_forward(const cpu_plain_plan *plan) {
    run_loop(plan, plan->base.binding.output, 0);
}

static void gelu_backward(const cpu_plain_plan *plan) {
    void *gradient = plan->base.binding.input_gradients[0];
    if (gradient != NULL) run_loop(plan, gradient, OF_SLOPE);
}

yoke_status cpu_plan_gelu(yoke_plan **plan, cpu_device *device, const yoke_plan_request *request) {
    static const cpu_plain_operation calls = {.flags = YOKE_IN_PLACE | YOKE_READS_INPUT,
                                              .bytes = sizeof(cpu_plain_plan),
                                              .any_order = true,
                                              .forward = gelu_forward,
                                              .backward = gelu_backward};
    return cpu_plain_plan_create(plan, device, request, &calls, 1);
}
