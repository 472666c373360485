/* SPDX-License-Identifier: Apache-2.0 */
/* Random changes of colour: torchvision's ColorJitter on a tensor of bytes, bit for bit for the
 * same factors (torchvision/transforms/_functional_tensor.py). An image is [3, pixels]. */
#include <math.h>

#include "data/data.h"

/* Blocks of an image's random numbers: yoke_augment_place and yoke_image_random use the first. */
#define FACTORS_BLOCK 16
#define ORDER_BLOCK 17

/* Rounds as torch does: each product to float32, then the sum. */
static uint8_t blend(float factor, float rest, uint8_t pixel, float other) {
    float value = factor * (float)pixel + rest * other;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* torchvision's rgb_to_grayscale, which cuts to a whole number. */
static uint8_t gray_of(const uint8_t *rgb, size_t pixels) {
    return (uint8_t)(0.2989f * (float)rgb[0] + 0.587f * (float)rgb[pixels] +
                     0.114f * (float)rgb[2 * pixels]);
}

static void blend_all(uint8_t *image, size_t count, double factor, float other) {
    float rest = (float)(1 - factor);
    for (size_t i = 0; i < count; i++)
        image[i] = blend((float)factor, rest, image[i], other);
}

static float mean_gray(const uint8_t *image, size_t pixels) {
    uint64_t sum = 0;
    for (size_t i = 0; i < pixels; i++)
        sum += gray_of(image + i, pixels);
    return (float)sum / (float)pixels;
}

static void saturate(uint8_t *image, size_t pixels, double factor) {
    float rest = (float)(1 - factor);
    for (size_t i = 0; i < pixels; i++) {
        float gray = gray_of(image + i, pixels);
        for (size_t channel = 0; channel < 3; channel++)
            image[channel * pixels + i] =
                blend((float)factor, rest, image[channel * pixels + i], gray);
    }
}

typedef struct hsv {
    float hue, saturation, value;
} hsv;

/* _rgb2hsv */
static hsv hsv_of(float r, float g, float b) {
    float most = fmaxf(r, fmaxf(g, b)), span = most - fminf(r, fminf(g, b)), hue;
    if (span == 0) return (hsv){0, 0, most};
    float rc = (most - r) / span, gc = (most - g) / span, bc = (most - b) / span;
    if (most == r)
        hue = bc - gc;
    else if (most == g)
        hue = 2.0f + rc - bc;
    else
        hue = 4.0f + gc - rc;
    return (hsv){fmodf(hue / 6.0f + 1.0f, 1.0f), span / most, most};
}

static float unit(float value) {
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

/* _hsv2rgb */
static void rgb_of(hsv color, float rgb[3]) {
    float sector = floorf(color.hue * 6.0f), f = color.hue * 6.0f - sector;
    float v = color.value, s = color.saturation;
    float p = unit(v * (1.0f - s)), q = unit(v * (1.0f - s * f));
    float t = unit(v * (1.0f - s * (1.0f - f)));
    const float sectors[6][3] = {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}};
    for (int i = 0; i < 3; i++)
        rgb[i] = sectors[(int)sector % 6][i];
}

static void turn_hue(uint8_t *image, size_t pixels, double turn) {
    for (size_t i = 0; i < pixels; i++) {
        hsv color = hsv_of((float)image[i] / 255.0f, (float)image[pixels + i] / 255.0f,
                           (float)image[2 * pixels + i] / 255.0f);
        float rgb[3];
        color.hue = fmodf(color.hue + (float)turn, 1.0f);
        if (color.hue < 0) color.hue += 1.0f;
        rgb_of(color, rgb);
        for (size_t channel = 0; channel < 3; channel++) /* convert_image_dtype */
            image[channel * pixels + i] = (uint8_t)(rgb[channel] * 255.999f);
    }
}

void yoke_color_adjust(uint8_t *image, size_t pixels, yoke_color_property property, double factor) {
    switch (property) {
    case YOKE_COLOR_BRIGHTNESS:
        blend_all(image, 3 * pixels, factor, 0);
        break;
    case YOKE_COLOR_CONTRAST:
        blend_all(image, 3 * pixels, factor, mean_gray(image, pixels));
        break;
    case YOKE_COLOR_SATURATION:
        saturate(image, pixels, factor);
        break;
    case YOKE_COLOR_HUE:
        turn_hue(image, pixels, factor);
        break;
    }
}

/* Uniform within `strength` of `middle`, but not below 0 around 1. */
static double draw(uint32_t word, double middle, double strength) {
    double low = middle - strength, high = middle + strength;
    if (middle > 0 && low < 0) low = 0;
    return low + (high - low) * yoke_random_unit(word);
}

bool yoke_color_jitter_on(const yoke_color_jitter *jitter) {
    return jitter->brightness > 0 || jitter->contrast > 0 || jitter->saturation > 0 ||
           jitter->hue > 0;
}

void yoke_color_jitter_row(uint8_t *image, size_t pixels, const yoke_augmentation *augmentation,
                           size_t row) {
    const yoke_color_jitter *jitter = &augmentation->color_jitter;
    if (!yoke_color_jitter_on(jitter)) return;
    const double strengths[] = {jitter->brightness, jitter->contrast, jitter->saturation,
                                jitter->hue};
    uint32_t factors[4], swaps[4];
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      FACTORS_BLOCK, factors);
    yoke_random_words(augmentation->seed, YOKE_RANDOM_AUGMENT, augmentation->epoch, (uint32_t)row,
                      ORDER_BLOCK, swaps);
    yoke_color_property order[] = {YOKE_COLOR_BRIGHTNESS, YOKE_COLOR_CONTRAST,
                                   YOKE_COLOR_SATURATION, YOKE_COLOR_HUE};
    for (int i = 3; i > 0; i--) { /* Fisher and Yates */
        int j = yoke_random_below(swaps[i], i + 1);
        yoke_color_property kept = order[i];
        order[i] = order[j];
        order[j] = kept;
    }
    for (int i = 0; i < 4; i++) {
        yoke_color_property property = order[i];
        double middle = property == YOKE_COLOR_HUE ? 0 : 1;
        if (strengths[property] > 0)
            yoke_color_adjust(image, pixels, property,
                              draw(factors[property], middle, strengths[property]));
    }
}
