/* SPDX-License-Identifier: Apache-2.0 */
/* Update rules: how a step changes one weight, once for every backend and for the float64
 * reference. A new rule is a row here; src/optimizer/rules.c says which optimizer uses it. */
#ifndef DEVICE_UPDATE_H
#define DEVICE_UPDATE_H

/* What the formulas read: SCALAR(name). 1 - beta2 taken from a float is wrong in the fifth digit,
 * so the caller computes all of them in double, as Python does.
 *   rate: the learning rate; decay: weight decay; shrink: 1 - rate * decay
 *   first, nesterov: 1 or 0; first: in update 1
 *   rise1, rise2, rise, dampen: 1 - beta1, 1 - beta2, 1 - alpha, 1 - momentum
 *   in update t = 1, ...: correction1: 1 - beta1^t; step_size: rate / correction1;
 *   correction2_root: sqrt(1 - beta2^t) */
#define YOKE_UPDATE_SCALARS(SCALAR)                                                                \
    SCALAR(rate)                                                                                   \
    SCALAR(decay)                                                                                  \
    SCALAR(shrink)                                                                                 \
    SCALAR(first)                                                                                  \
    SCALAR(momentum)                                                                               \
    SCALAR(nesterov)                                                                               \
    SCALAR(beta1)                                                                                  \
    SCALAR(beta2)                                                                                  \
    SCALAR(alpha)                                                                                  \
    SCALAR(epsilon)                                                                                \
    SCALAR(rise1)                                                                                  \
    SCALAR(rise2)                                                                                  \
    SCALAR(rise)                                                                                   \
    SCALAR(dampen)                                                                                 \
    SCALAR(correction1)                                                                            \
    SCALAR(step_size)                                                                              \
    SCALAR(correction2_root)

/* ROW(NAME, name, states, formula)
 * w: the weight; g: its gradient; m, v: the rule's states of this weight, 0 where it has fewer; k:
 * the scalars. The formula changes w and the states; its operations and their order are those of
 * torch.optim. LAMB, MUON: w becomes the direction, which a rule of whole tensors goes on with (see
 * optimizer/whole.c); APPLY: g is the direction. AVERAGE: g is a weight, and w the moving average
 * of it, which the first update makes the weight. REST: nothing changes; with as many states as the
 * rule that rests. REAL is the type, FN(sqrt) the type's sqrt; the file that expands a row defines
 * both. */
#define YOKE_UPDATES(ROW)                                                                          \
    ROW(SGD, sgd, 0, g += k.decay * w; w -= k.rate * g)                                            \
    ROW(MOMENTUM, momentum, 1, g += k.decay * w; m = k.first ? g : k.momentum * m + g;             \
        w -= k.rate * (k.nesterov ? g + k.momentum * m : m))                                       \
    ROW(ADAMW, adamw, 2, w *= k.shrink; YOKE_ADAM_FORMULA)                                         \
    ROW(ADAM, adam, 2, g += k.decay * w; YOKE_ADAM_FORMULA)                                        \
    ROW(RMSPROP, rmsprop, 1, g += k.decay * w; m = m * k.alpha + k.rise * g * g;                   \
        w -= k.rate * g / (FN(sqrt)(m) + k.epsilon))                                               \
    ROW(RMSPROP_MOMENTUM, rmsprop_momentum, 2, g += k.decay * w; m = m * k.alpha + k.rise * g * g; \
        v = k.momentum * v + g / (FN(sqrt)(m) + k.epsilon); w -= k.rate * v)                       \
    ROW(LION, lion, 1, w *= k.shrink; REAL direction = m * k.beta1 + k.rise1 * g;                  \
        REAL size = direction != 0 ? k.rate : 0; w -= FN(copysign)(size, direction);               \
        m = m * k.beta2 + k.rise2 * g)                                                             \
    ROW(ADAGRAD, adagrad, 1, g += k.decay * w; m += g * g;                                         \
        w -= k.rate * g / (FN(sqrt)(m) + k.epsilon))                                               \
    ROW(LAMB, lamb, 2, m += k.rise1 * (g - m); v = v * k.beta2 + k.rise2 * g * g;                  \
        w = m / k.correction1 / (FN(sqrt)(v) / k.correction2_root + k.epsilon) + k.decay * w)      \
    ROW(MUON, muon, 1, m += k.dampen * (g - m); w = k.nesterov ? m - (m - g) * k.dampen : m)       \
    ROW(APPLY, apply, 0, w *= k.shrink; w -= k.rate * g)                                           \
    ROW(AVERAGE, average, 0, w = k.first ? g : w - k.rate * (w - g))                               \
    ROW(REST, rest, 0, (void)k; (void)w; (void)g)                                                  \
    ROW(REST_OF_ONE, rest_of_one, 1, (void)k; (void)w; (void)g)                                    \
    ROW(REST_OF_TWO, rest_of_two, 2, (void)k; (void)w; (void)g)
#define YOKE_ADAM_FORMULA                                                                          \
    m += k.rise1 * (g - m);                                                                        \
    v = v * k.beta2 + k.rise2 * g * g;                                                             \
    w -= k.step_size * m / (FN(sqrt)(v) / k.correction2_root + k.epsilon)

#define YOKE_UPDATE_STATES 2 /* of a rule, at most */

#define YOKE_UPDATE_RULE(NAME, name, states, formula) YOKE_UPDATE_##NAME,
typedef enum yoke_update_rule { YOKE_UPDATES(YOKE_UPDATE_RULE) YOKE_UPDATE_RULES } yoke_update_rule;
#undef YOKE_UPDATE_RULE

#define YOKE_UPDATE_DOUBLE(name) double name;
typedef struct yoke_update_scalars {
    YOKE_UPDATE_SCALARS(YOKE_UPDATE_DOUBLE)
} yoke_update_scalars;
#undef YOKE_UPDATE_DOUBLE

#define YOKE_UPDATE_FLOAT(name) float name;
typedef struct yoke_float_scalars {
    YOKE_UPDATE_SCALARS(YOKE_UPDATE_FLOAT)
} yoke_float_scalars;
#undef YOKE_UPDATE_FLOAT

#define YOKE_UPDATE_ROUND(name) rounded.name = (float)scalars->name;
static inline yoke_float_scalars yoke_update_round(const yoke_update_scalars *scalars) {
    yoke_float_scalars rounded;
    YOKE_UPDATE_SCALARS(YOKE_UPDATE_ROUND)
    return rounded;
}
#undef YOKE_UPDATE_ROUND

#endif
