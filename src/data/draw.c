/* SPDX-License-Identifier: Apache-2.0 */
/* Draws the images of the synthetic set. A class is a figure with a texture; position, size, angle,
 * colours, light and noise are independent of the class. Figure and ground exchange colours at
 * random, so the mean image of every class is the same grey: a linear model cannot learn the
 * classes, a convolution sees them in the edges. */
#include "data/data.h"

#include <math.h>

#define DRAWING_SEED UINT64_C(0x796f6b65) /* "yoke" */
#define FULL_TURN 6.2831853f
#define MAX_CHANNELS 64

/* Figures are signed distances in pixels (negative inside), after Quilez's two-dimensional ones;
 * FIGURE_NONE covers the whole image. */
typedef enum figure {
    FIGURE_DISC,
    FIGURE_SQUARE,
    FIGURE_TRIANGLE,
    FIGURE_CROSS,
    FIGURE_RING,
    FIGURE_STAR,
    FIGURE_FRAME,
    FIGURE_CRESCENT,
    FIGURE_BAR,
    FIGURE_HALF_DISC,
    FIGURE_COUNT,
    FIGURE_NONE = FIGURE_COUNT
} figure;

typedef enum texture {
    TEXTURE_PLAIN,
    TEXTURE_HORIZONTAL,
    TEXTURE_VERTICAL,
    TEXTURE_CHECKER,
    TEXTURE_DIAGONAL,
    TEXTURE_DOTS,
    TEXTURE_GRID,
    TEXTURE_RINGS,
    TEXTURE_ZIGZAG,
    TEXTURE_BRICKS
} texture;

/* The random parameters of one image. */
typedef struct sketch {
    figure figure;
    texture texture;
    float x, y, radius;           /* of the figure, pixels */
    float cosine, sine;           /* of its rotation */
    float lean_cosine, lean_sine; /* of the texture's rotation */
    float phase_x, phase_y, period;
    float light_x, light_y; /* change of brightness per pixel */
    float noise;
    float colours[3][MAX_CHANNELS]; /* 0..1: figure, its second colour, ground */
} sketch;

/* The random numbers of one image, in order. */
typedef struct rng {
    const yoke_drawing *drawing;
    uint32_t block, words[4];
    int left;
} rng;

static uint32_t rng_word(rng *draws) {
    if (draws->left == 0) {
        yoke_random_words(DRAWING_SEED, YOKE_RANDOM_SYNTHETIC, draws->drawing->row,
                          (uint32_t)draws->drawing->split, draws->block++, draws->words);
        draws->left = 4;
    }
    return draws->words[--draws->left];
}

static float rng_uniform(rng *draws, float low, float high) {
    return low + (high - low) * yoke_random_unit(rng_word(draws));
}

static float limit(float value, float low, float high) {
    return value < low ? low : value > high ? high : value;
}

/* Assigns dark, middle and light at random and tints them; the distribution is symmetric about one
 * half. */
static void mix_colours(rng *draws, sketch *drawn, int channels) {
    static const float levels[3] = {0.16f, 0.5f, 0.84f};
    int order[3] = {0, 1, 2};
    for (int i = 0; i < 2; i++) {
        int other = i + (int)(rng_word(draws) % (uint32_t)(3 - i)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int i = 0; i < 3; i++) {
        float level = levels[order[i]] + rng_uniform(draws, -0.08f, 0.08f);
        for (int channel = 0; channel < channels; channel++) {
            float tint = channels > 1 ? rng_uniform(draws, -0.24f, 0.24f) : 0;
            drawn->colours[i][channel] = limit(level + tint, 0.04f, 0.96f);
        }
    }
}

static void compose(rng *draws, const yoke_drawing *drawing, sketch *drawn) {
    float width = (float)drawing->shape.width, height = (float)drawing->shape.height;
    float side = fminf(width, height);
    /* 0-4: plain figures; 5-9: textures all over; then every figure with every texture. */
    int label = drawing->label;
    if (label < 5) {
        drawn->figure = (figure)label;
        drawn->texture = TEXTURE_PLAIN;
    } else if (label < 10) {
        drawn->figure = FIGURE_NONE;
        drawn->texture = (texture)(label - 4);
    } else {
        drawn->figure = (figure)((label - 10) % FIGURE_COUNT);
        drawn->texture = (texture)(1 + (label - 10) / FIGURE_COUNT);
    }
    drawn->radius = side * rng_uniform(draws, 0.27f, 0.42f);
    float margin = 0.85f * drawn->radius;
    drawn->x = rng_uniform(draws, margin, width - margin);
    drawn->y = rng_uniform(draws, margin, height - margin);
    float turn = rng_uniform(draws, 0, FULL_TURN), lean = rng_uniform(draws, -0.12f, 0.12f);
    /* A mirror image must keep its class, so diagonals run in either direction. */
    if (drawn->texture == TEXTURE_DIAGONAL) lean += rng_word(draws) >> 31 ? 0.7854f : -0.7854f;
    drawn->cosine = cosf(turn);
    drawn->sine = sinf(turn);
    drawn->lean_cosine = cosf(lean);
    drawn->lean_sine = sinf(lean);
    float scale = drawn->figure == FIGURE_NONE ? 1.0f : 0.8f;
    drawn->period = fmaxf(4.0f, scale * side * rng_uniform(draws, 0.19f, 0.31f));
    drawn->phase_x = rng_uniform(draws, 0, drawn->period);
    drawn->phase_y = rng_uniform(draws, 0, drawn->period);
    drawn->light_x = rng_uniform(draws, -0.12f, 0.12f) / width;
    drawn->light_y = rng_uniform(draws, -0.12f, 0.12f) / height;
    drawn->noise = rng_uniform(draws, 0.3f, 1.6f);
    mix_colours(draws, drawn, drawing->shape.channels);
}

static float length(float x, float y) {
    return sqrtf(x * x + y * y);
}

static float box(float x, float y, float half_width, float half_height) {
    float across = fabsf(x) - half_width, along = fabsf(y) - half_height;
    return fmaxf(across, along);
}

static float star(float x, float y, float radius) {
    const float c = 0.80901699f, s = 0.58778525f, inner = 0.45f;
    x = fabsf(x);
    float fold = 2 * fmaxf(c * x - s * y, 0);
    x -= fold * c, y += fold * s;
    fold = 2 * fmaxf(-c * x - s * y, 0);
    x += fold * c, y += fold * s;
    x = fabsf(x);
    y -= radius;
    float edge_x = inner * s, edge_y = inner * c - 1;
    float along = (x * edge_x + y * edge_y) / (edge_x * edge_x + edge_y * edge_y);
    along = limit(along, 0, radius);
    float distance = length(x - edge_x * along, y - edge_y * along);
    return y * edge_x - x * edge_y < 0 ? -distance : distance;
}

static float figure_distance(const sketch *drawn, float x, float y) {
    float r = drawn->radius;
    switch (drawn->figure) {
    case FIGURE_DISC:
        return length(x, y) - 0.85f * r;
    case FIGURE_SQUARE:
        return box(x, y, 0.72f * r, 0.72f * r);
    case FIGURE_TRIANGLE:
        return fmaxf(0.8660254f * fabsf(x) + 0.5f * y, -y) - 0.55f * r;
    case FIGURE_CROSS:
        return fminf(box(x, y, r, 0.28f * r), box(x, y, 0.28f * r, r));
    case FIGURE_RING:
        return fabsf(length(x, y) - 0.72f * r) - 0.2f * r;
    case FIGURE_STAR:
        return star(x, y, r);
    case FIGURE_FRAME:
        return fabsf(box(x, y, 0.65f * r, 0.65f * r)) - 0.18f * r;
    case FIGURE_CRESCENT:
        return fmaxf(length(x, y) - r, 0.8f * r - length(x - 0.5f * r, y));
    case FIGURE_BAR:
        return box(x, y, r, 0.35f * r);
    case FIGURE_HALF_DISC:
        return fmaxf(length(x, y + 0.4f * r) - r, -0.4f * r - y);
    default:
        return -1;
    }
}

/* Distance to the nearest edge of stripes one half period wide, negative on a stripe. */
static float stripes(float x, float period) {
    float place = x / period;
    return (fabsf(place - floorf(place) - 0.5f) - 0.25f) * period;
}

/* The same of thin lines, one a period. */
static float lines(float x, float period, float half_width) {
    float place = x / period;
    return fabsf(place - floorf(place) - 0.5f) * period - half_width;
}

static float wave(float x, float period) {
    float place = x / period;
    return fabsf(place - floorf(place) - 0.5f) * period;
}

static float dots(float x, float y, float period) {
    float column = x / period, line = y / period;
    column -= floorf(column) + 0.5f;
    line -= floorf(line) + 0.5f;
    return length(column * period, line * period) - 0.32f * period;
}

static float bricks(float x, float y, float period) {
    float course = 0.7f * period;
    float shift = fmodf(floorf(y / course), 2) != 0 ? 0.75f * period : 0;
    return fminf(lines(y - 0.5f * course, course, 0.12f * period),
                 lines(x + shift, 1.5f * period, 0.12f * period));
}

static float texture_distance(const sketch *drawn, float x, float y) {
    float period = drawn->period;
    switch (drawn->texture) {
    case TEXTURE_HORIZONTAL:
        return stripes(y, period);
    case TEXTURE_VERTICAL:
    case TEXTURE_DIAGONAL:
        return stripes(x, period);
    case TEXTURE_CHECKER: {
        float across = stripes(x, 1.4f * period), along = stripes(y, 1.4f * period);
        float nearest = fminf(fabsf(across), fabsf(along));
        return (across < 0) == (along < 0) ? -nearest : nearest;
    }
    case TEXTURE_DOTS:
        return dots(x, y, period);
    case TEXTURE_GRID:
        return fminf(lines(x, period, 0.14f * period), lines(y, period, 0.14f * period));
    case TEXTURE_RINGS:
        return stripes(length(x - drawn->x, y - drawn->y) + drawn->phase_x, period);
    case TEXTURE_ZIGZAG:
        return stripes(y + wave(x, 1.5f * period), period);
    case TEXTURE_BRICKS:
        return bricks(x, y, period);
    default:
        return -1;
    }
}

/* How much of a pixel lies inside an edge at this distance: one pixel of antialiasing. */
static float coverage(float distance) {
    return limit(0.5f - distance, 0, 1);
}

/* The shares of the three colours in a pixel. */
static void look(const sketch *drawn, float x, float y, float shares[3]) {
    float dx = x - drawn->x, dy = y - drawn->y;
    float inside = 1;
    if (drawn->figure != FIGURE_NONE)
        inside = coverage(figure_distance(drawn, drawn->cosine * dx + drawn->sine * dy,
                                          drawn->cosine * dy - drawn->sine * dx));
    float first = 1;
    if (drawn->texture != TEXTURE_PLAIN && inside > 0)
        first = coverage(
            texture_distance(drawn, drawn->lean_cosine * x + drawn->lean_sine * y + drawn->phase_x,
                             drawn->lean_cosine * y - drawn->lean_sine * x + drawn->phase_y));
    shares[0] = inside * first;
    shares[1] = inside * (1 - first);
    shares[2] = 1 - inside;
}

/* Triangular noise, -15..15 from a byte's two halves: the sum of two random digits. */
static float grain(rng *draws, uint32_t *word, int channel) {
    if (channel % 4 == 0) *word = rng_word(draws);
    uint32_t byte = *word >> (channel % 4 * 8) & 255;
    return (float)((int)(byte >> 4) + (int)(byte & 15) - 15);
}

void yoke_draw_row(const yoke_drawing *drawing, uint8_t *pixels) {
    const yoke_shape *shape = &drawing->shape;
    size_t plane = (size_t)shape->height * (size_t)shape->width;
    rng draws = {.drawing = drawing};
    sketch drawn;
    compose(&draws, drawing, &drawn);
    for (size_t pixel = 0; pixel < plane; pixel++) {
        float x = (float)(pixel % (size_t)shape->width) + 0.5f;
        float y = (float)(pixel / (size_t)shape->width) + 0.5f;
        float shares[3];
        look(&drawn, x, y, shares);
        float light = drawn.light_x * (2 * x - (float)shape->width) +
                      drawn.light_y * (2 * y - (float)shape->height);
        uint32_t word = 0;
        for (int channel = 0; channel < shape->channels; channel++) {
            float value = light;
            for (int i = 0; i < 3; i++)
                value += shares[i] * drawn.colours[i][channel];
            value = value * 255 + drawn.noise * grain(&draws, &word, channel) + 0.5f;
            pixels[(size_t)channel * plane + pixel] = (uint8_t)limit(value, 0, 255);
        }
    }
}
