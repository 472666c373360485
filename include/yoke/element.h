/* Element types and reductions of the collectives. */
#ifndef YOKE_ELEMENT_H
#define YOKE_ELEMENT_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum yoke_element {
    YOKE_ELEMENT_FLOAT32,
    YOKE_ELEMENT_BFLOAT16,
    YOKE_ELEMENT_INT64,
    YOKE_ELEMENT_FLOAT64
} yoke_element;

typedef enum yoke_reduction { YOKE_SUM, YOKE_MEAN, YOKE_MIN, YOKE_MAX } yoke_reduction;

#ifdef __cplusplus
}
#endif

#endif
