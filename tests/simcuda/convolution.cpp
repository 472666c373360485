/* SPDX-License-Identifier: Apache-2.0 */
/* Convolution as a sum of matrix products: for every tap of the filter one product reads a line
 * of pixels. Inside, values are float, channels last. */
#include "simcuda/convolution.h"

#include <algorithm>

namespace sim::conv {
namespace {

/* Pixels of one output line (or column) that a tap reaches: q, q + 1, ... count of them. */
struct Reach {
    int first, count;
};
Reach reach(const Shape &s, int axis, int tap) {
    int stride = s.stride[axis], shift = tap * s.dilation[axis] - s.pad[axis];
    int in = (int)s.x.dims[H + axis], out = (int)s.y.dims[H + axis];
    int first = shift < 0 ? (-shift + stride - 1) / stride : 0;
    int last = in - 1 - shift < 0 ? -1 : std::min(out - 1, (in - 1 - shift) / stride);
    return {first, std::max(0, last - first + 1)};
}

/* Calls use(place of the tensor, index channels last) for every pixel. */
template <typename Use> void each_pixel(const Tensor &t, Use use) {
    size_t index = 0;
    for (size_t n = 0; n < t.dims[N]; n++)
        for (size_t h = 0; h < t.dims[H]; h++)
            for (size_t w = 0; w < t.dims[W]; w++, index += t.dims[C])
                use(n * t.strides[N] + h * t.strides[H] + w * t.strides[W], index);
}

bool plain_floats(const Tensor &t) {
    return t.type == Type::float32 && t.strides[C] == 1;
}

/* As floats, channels last: [N, H, W, C]. */
std::vector<float> read(const Tensor &t, const void *from, bool tf32) {
    size_t channels = t.dims[C], step = t.strides[C];
    std::vector<float> values(t.dims[N] * channels * t.dims[H] * t.dims[W]);
    each_pixel(t, [&](size_t place, size_t index) {
        float *to = &values[index];
        if (plain_floats(t))
            std::copy_n((const float *)from + place, channels, to);
        else
            for (size_t c = 0; c < channels; c++)
                to[c] = load(t.type, from, place + c * step);
        for (size_t c = 0; tf32 && c < channels; c++)
            to[c] = round_to_tf32(to[c]);
    });
    return values;
}

void write(const Tensor &t, const std::vector<float> &values, Scale scale, void *to) {
    size_t channels = t.dims[C], step = t.strides[C];
    each_pixel(t, [&](size_t place, size_t index) {
        const float *from = &values[index];
        if (plain_floats(t) && scale.alpha == 1 && scale.beta == 0) {
            std::copy_n(from, channels, (float *)to + place);
            return;
        }
        for (size_t c = 0; c < channels; c++) {
            size_t at = place + c * step;
            float value = scale.alpha * from[c];
            if (scale.beta != 0) value += scale.beta * load(t.type, to, at);
            store(t.type, to, at, value);
        }
    });
}

/* [rows, columns] to [columns, rows], by squares that stay in the cache. */
std::vector<float> transpose(const std::vector<float> &from, size_t rows) {
    constexpr size_t SIDE = 16;
    size_t columns = from.size() / rows;
    std::vector<float> to(from.size());
    for (size_t top = 0; top < rows; top += SIDE)
        for (size_t left = 0; left < columns; left += SIDE)
            for (size_t i = top; i < std::min(rows, top + SIDE); i++)
                for (size_t j = left; j < std::min(columns, left + SIDE); j++)
                    to[j * rows + i] = from[i * columns + j];
    return to;
}

/* Lines of pixels that one tap pairs: x + i * x_step and y + i * y_step, i < count. Along the
 * width, or over the images where there are more of those. */
struct Line {
    size_t x, y, count, x_step, y_step;
};

template <typename Use>
void each_line(const Shape &s, size_t r, size_t tap, bool over_images, Use use) {
    int shift_h = (int)r * s.dilation[0] - s.pad[0], shift_w = (int)tap * s.dilation[1] - s.pad[1];
    Reach rows = reach(s, 0, (int)r), columns = reach(s, 1, (int)tap);
    size_t xc = s.x.dims[C], yc = s.y.dims[C];
    size_t x_image = s.x.dims[H] * s.x.dims[W] * xc;
    size_t y_image = s.y.dims[H] * s.y.dims[W] * yc;
    auto x_at = [&](int p, int q) {
        int h = p * s.stride[0] + shift_h, w = q * s.stride[1] + shift_w;
        return ((size_t)h * s.x.dims[W] + (size_t)w) * xc;
    };
    auto y_at = [&](int p, int q) { return ((size_t)p * s.y.dims[W] + (size_t)q) * yc; };
    size_t images = s.x.dims[N], length = (size_t)columns.count;
    for (int p = rows.first; p < rows.first + rows.count; p++)
        if (over_images) {
            for (int q = columns.first; q < columns.first + columns.count; q++)
                use(Line{x_at(p, q), y_at(p, q), images, x_image, y_image});
        } else if (length > 0) {
            size_t x = x_at(p, columns.first), y = y_at(p, columns.first);
            for (size_t n = 0; n < images; n++)
                use(Line{x + n * x_image, y + n * y_image, length, xc * (size_t)s.stride[1], yc});
        }
}

bool more_images(const Shape &s) {
    return s.x.dims[N] > s.y.dims[W];
}

} // namespace

Tensor packed(Type type, const int dims[4], bool channels_last) {
    Tensor t{type, {}, {}};
    for (int axis : {N, C, H, W})
        t.dims[axis] = (size_t)dims[axis];
    const int last[] = {C, W, H, N}, first[] = {W, H, C, N};
    size_t stride = 1;
    for (int axis : channels_last ? last : first) {
        t.strides[axis] = stride;
        stride *= t.dims[axis];
    }
    return t;
}

size_t bytes(const Tensor &t) {
    size_t last = 0;
    for (int axis : {N, C, H, W})
        last += (t.dims[axis] - 1) * t.strides[axis];
    return (last + 1) * type_bytes(t.type);
}

bool output_dims(const Shape &s, size_t dims[4]) {
    if (s.groups < 1 || s.x.dims[C] != s.w.dims[C] * s.groups || s.w.dims[N] % s.groups != 0)
        return false;
    dims[N] = s.x.dims[N];
    dims[C] = s.w.dims[N];
    for (int axis = 0; axis < 2; axis++) {
        int taken = s.dilation[axis] * ((int)s.w.dims[H + axis] - 1) + 1;
        int room = (int)s.x.dims[H + axis] + 2 * s.pad[axis] - taken;
        if (room < 0) return false;
        dims[H + axis] = (size_t)(room / s.stride[axis] + 1);
    }
    return true;
}

void forward(const Shape &s, Scale scale, const void *x_from, const void *w_from, void *y_to) {
    std::vector<float> x = read(s.x, x_from, s.tf32), krsc = read(s.w, w_from, s.tf32);
    std::vector<float> w = transpose(krsc, s.w.dims[N]), y; /* w: [R, S, C, K] */
    size_t k_all = s.y.dims[C], c = s.w.dims[C], k = k_all / s.groups;
    y.resize(s.y.dims[N] * s.y.dims[H] * s.y.dims[W] * k_all);
    for (size_t r = 0; r < s.w.dims[H]; r++)
        for (size_t tap = 0; tap < s.w.dims[W]; tap++) {
            const float *taps = w.data() + (r * s.w.dims[W] + tap) * c * k_all;
            each_line(s, r, tap, more_images(s), [&](const Line &line) {
                for (size_t g = 0; g < s.groups; g++)
                    multiply({line.count, k, c, x.data() + line.x + g * c, line.x_step, 1,
                              taps + g * k, k_all, y.data() + line.y + g * k, line.y_step});
            });
        }
    write(s.y, y, scale, y_to);
}

void backward_data(const Shape &s, Scale scale, const void *w_from, const void *dy_from,
                   void *dx_to, unsigned order) {
    std::vector<float> w = read(s.w, w_from, s.tf32), dy = read(s.y, dy_from, s.tf32), dx;
    size_t c = s.w.dims[C], k = s.y.dims[C] / s.groups;
    size_t taps = s.w.dims[H] * s.w.dims[W];
    dx.resize(s.x.dims[N] * s.x.dims[H] * s.x.dims[W] * s.x.dims[C]);
    for (size_t i = 0; i < taps; i++) {
        size_t at = (i + order) % taps;
        each_line(s, at / s.w.dims[W], at % s.w.dims[W], more_images(s), [&](const Line &line) {
            for (size_t g = 0; g < s.groups; g++)
                multiply({line.count, c, k, dy.data() + line.y + g * k, line.y_step, 1,
                          w.data() + (g * k * taps + at) * c, taps * c, dx.data() + line.x + g * c,
                          line.x_step});
        });
    }
    write(s.x, dx, scale, dx_to);
}

/* Sums over pixels, image after image, each image's in the order of its lines. */
void backward_filter(const Shape &s, Scale scale, const void *x_from, const void *dy_from,
                     void *dw_to, unsigned order) {
    std::vector<float> x = read(s.x, x_from, s.tf32), dy = read(s.y, dy_from, s.tf32);
    size_t k_all = s.y.dims[C], c = s.w.dims[C], k = k_all / s.groups;
    std::vector<float> dw(s.w.dims[H] * s.w.dims[W] * c * k_all);
    for (size_t r = 0; r < s.w.dims[H]; r++)
        for (size_t tap = 0; tap < s.w.dims[W]; tap++) {
            float *taps = dw.data() + (r * s.w.dims[W] + tap) * c * k_all;
            std::vector<Line> lines;
            each_line(s, r, tap, false, [&](const Line &line) { lines.push_back(line); });
            for (size_t i = 0; i < lines.size(); i++) {
                const Line &line = lines[(i + order) % lines.size()];
                for (size_t g = 0; g < s.groups; g++)
                    multiply({c, k, line.count, x.data() + line.x + g * c, 1, line.x_step,
                              dy.data() + line.y + g * k, k_all, taps + g * k, k_all});
            }
        }
    write(s.w, transpose(dw, dw.size() / k_all), scale, dw_to);
}

} // namespace sim::conv
