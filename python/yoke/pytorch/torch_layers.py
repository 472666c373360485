# SPDX-License-Identifier: Apache-2.0
"""ATen's layers as the library's own: convolutions, norms, pools, embeddings, attention, recurrent layers, dropout."""
from __future__ import annotations

import math

import torch

from .torch_operators import binary, operator, reshape_value
from .torch_reductions import reduce
from .torch_values import Unsupported, Value, product, row_axis


def pair(value) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


def window(kernel, stride=None, padding=0, dilation=1) -> dict:
    """The options of a window; widths are given where they differ."""
    found = {}
    for name, value in (("kernel", kernel), ("stride", stride if stride not in (None, []) else kernel),
                        ("padding", padding), ("dilation", dilation)):
        found[name], found[f"{name}_width"] = pair(value)
    return found


def image(c, value: Value, what: str):
    """The node of an image [channels, height, width], whose batch is dimension 0."""
    if value.batch is None or value.batch[0] != 0:
        raise Unsupported(f"{what} of a tensor whose batch is not dimension 0")
    if value.batch[1:] != (1, 1):
        raise Unsupported(f"{what} of more images than the batch has rows")
    if len(value.shape) != 4:
        raise Unsupported(f"{what} of a tensor of shape {value.shape}")
    return value.as_shape(c.builder, value.row)


@operator("linear")
def linear(c, input, weight, bias=None, **_):
    return c.linear(input, weight, bias)


@operator("conv2d", "conv1d", "conv3d", "convolution")
def convolution(c, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, transposed=False,
                output_padding=0, **_):
    sizes = weight.shape[2:]
    if isinstance(padding, str):
        if padding == "same" and any(k % 2 == 0 for k in sizes):
            raise Unsupported("padding='same' of an even kernel")
        steps = [dilation] * len(sizes) if isinstance(dilation, int) else dilation
        padding = [0 if padding == "valid" else (k - 1) * d // 2 for k, d in zip(sizes, steps)]
    if transposed:
        return conv_transpose(c, input, weight, bias, stride, padding, output_padding, groups, dilation)
    options = c.layer(weight, {"weight": weight, "bias": bias}, out_channels=weight.shape[0], no_bias=bias is None)
    if len(sizes) == 3:
        return convolution3d(c, input, weight, options, stride, padding, dilation, groups)
    if len(sizes) == 1:  # a sequence is an image of one line
        node = input.as_shape(c.builder, (input.shape[-2], 1, input.shape[-1]))
        row_axis(input, -2)
        places = {name: (flat, value) for name, value, flat in (
            ("kernel", sizes[0], 1), ("stride", pair(stride)[0], 1), ("padding", pair(padding)[0], 0),
            ("dilation", pair(dilation)[0], 1))}
        options.update({name: value[0] for name, value in places.items()},
                       **{f"{name}_width": value[1] for name, value in places.items()})
    else:
        node = image(c, input, "a convolution")
        options.update(window(sizes, stride, padding, dilation))
    made = c.builder.conv2d(node, groups=groups, **options)
    return Value(c.shapes[0], input.batch, lambda: made)


def convolution3d(c, input, weight, options, stride, padding, dilation, groups):
    if groups != 1 or any(d != 1 for d in ([dilation] if isinstance(dilation, int) else dilation)):
        raise Unsupported("a convolution over volumes with groups or dilation")
    channels, depth, height, width = input.row
    three = lambda value: (value,) * 3 if isinstance(value, int) else tuple(value)  # noqa: E731
    made = c.builder.conv3d(input.as_shape(c.builder, (channels, depth * height, width)), depth=depth,
                            kernel=three(weight.shape[2:]), stride=three(stride), padding=three(padding), **options)
    return Value(c.shapes[0], input.batch, lambda: made)


@operator("conv_transpose2d")
def conv_transpose(c, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1, **_):
    options = c.layer(weight, {"weight": weight, "bias": bias}, no_bias=bias is None)
    options.update(window(weight.shape[2:], stride, padding, dilation), out_channels=weight.shape[1] * groups)
    options["output_padding"], options["output_padding_width"] = pair(output_padding)
    made = c.builder.conv_transpose2d(image(c, input, "a transposed convolution"), groups=groups, **options)
    return Value(c.shapes[0], input.batch, lambda: made)


@operator("_native_batch_norm_legit_functional", "_native_batch_norm_legit_no_training", "native_batch_norm")
def decomposed_batch_norm(c, training=False, **arguments):
    return [batch_norm(c, training=training, **arguments), None, None]


@operator("batch_norm")
def batch_norm(c, input, weight, bias, running_mean, running_var, training=False, momentum=0.1, eps=1e-5, **_):
    if running_mean is None:
        raise Unsupported("a batch norm without running statistics")
    options = c.norm_layer(weight, bias, running_mean, running_var)
    if not training:
        c.frozen_statistics.append(f"{options['name']}.*")
    row_axis(input, 1)
    row = input.row
    sizes = row if len(row) == 1 else (row[0], product(row[1:-1]), row[-1])
    made = c.builder.batch_norm(input.as_shape(c.builder, sizes), epsilon=eps, momentum=momentum, **options)
    return Value(input.shape, input.batch, lambda: made)


@operator("layer_norm", "native_layer_norm")
def layer_norm(c, input, normalized_shape, weight=None, bias=None, eps=1e-5, **_):
    for dim in range(len(normalized_shape)):
        row_axis(input, -1 - dim)
    last, row = product(normalized_shape), input.row
    ahead = row[:len(row) - len(normalized_shape)]
    sizes = (product(ahead), last) if ahead else (last,)
    if weight is not None and bias is not None and weight.parameter and bias.parameter:
        options = c.layer(weight, {"weight": weight, "bias": bias}, share=False)
        made = c.builder.layer_norm(input.as_shape(c.builder, sizes), epsilon=eps, **options)
        result = Value(input.shape, input.batch, lambda: made)
        return [result, None, None] if c.name == "native_layer_norm" else result
    dims = list(range(-len(normalized_shape), 0))
    centered = binary(c, "subtract", input, reduce(c, input, "mean", dims, True))
    spread = reduce(c, c.map(centered, c.builder.square), "mean", dims, True)
    result = binary(c, "multiply", centered, c.map(spread, lambda node: c.builder.rsqrt(c.builder.offset(node, eps))))
    result = binary(c, "multiply", result, weight) if weight is not None else result
    return binary(c, "add", result, bias) if bias is not None else result


@operator("rms_norm")
def rms_norm(c, input, normalized_shape, weight=None, eps=None, **_):
    dims = list(range(-len(normalized_shape), 0))
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    spread = reduce(c, c.map(input, c.builder.square), "mean", dims, True)
    result = binary(c, "multiply", input, c.map(spread, lambda node: c.builder.rsqrt(c.builder.offset(node, eps))))
    return binary(c, "multiply", result, weight) if weight is not None else result


@operator("group_norm", "instance_norm")
def group_norm(c, input, num_groups=None, weight=None, bias=None, eps=1e-5, use_input_stats=True, **_):
    if not use_input_stats:
        raise Unsupported("an instance norm with running statistics")
    row_axis(input, 1)
    row = input.row
    node = input.as_shape(c.builder, (row[0], product(row[1:-1]), row[-1]) if len(row) > 1 else (row[0], 1, 1))
    options = {"not_affine": True}
    if weight is not None:
        options = c.layer(weight, {"weight": weight, "bias": bias}, share=False)
    made = c.builder.group_norm(node, groups=num_groups or row[0], epsilon=eps, **options)
    return Value(input.shape, input.batch, lambda: made)


@operator("prelu")
def prelu(c, self, weight, **_):
    sizes = [1] * len(self.shape)
    sizes[1 if len(self.shape) > 1 else 0] = weight.shape[0]
    negative = c.map(self, lambda node: c.builder.negate(c.builder.relu(c.builder.negate(node))))
    return binary(c, "add", c.map(self, c.builder.relu), binary(c, "multiply", negative, reshape_value(c, weight, sizes)))


# Pools.

def pooled_sizes(c, self, kernel, stride, padding, dilation, fill):
    """The image of a pool, with what ceil_mode reads behind the edge written out."""
    if any(value != 1 for value in pair(dilation)):
        raise Unsupported("a pool with dilation")
    node = image(c, self, "a pool")
    missing = []
    for axis, (k, s, p) in enumerate(zip(pair(kernel), pair(stride), pair(padding))):
        size, out = self.shape[2 + axis], c.shapes[0][2 + axis]
        missing.append(max(0, (out - 1) * s + k - size - 2 * p))
    if any(missing):
        for axis, name in enumerate(("height", "width")):
            p = pair(padding)[axis]
            node = c.builder.slice(node, name, -p, self.shape[2 + axis] + p + missing[axis], fill)
        padding = 0
    return node, window(kernel, stride, padding), any(missing)


@operator("max_pool2d", "max_pool2d_with_indices")
def max_pool2d(c, self, kernel_size, stride=(), padding=0, dilation=1, **_):
    node, options, _extended = pooled_sizes(c, self, kernel_size, stride or kernel_size, padding, dilation, -3e38)
    made = c.builder.max_pool(node, **{name: value for name, value in options.items() if "dilation" not in name})
    result = Value(c.shapes[0], self.batch, lambda: made)
    return [result, None] if c.name != "max_pool2d" else result


@operator("avg_pool2d")
def avg_pool2d(c, self, kernel_size, stride=(), padding=0, count_include_pad=True, divisor_override=None, **_):
    if divisor_override:
        raise Unsupported("an average with another divisor")
    node, options, extended = pooled_sizes(c, self, kernel_size, stride or kernel_size, padding, 1, 0.0)
    made = c.builder.average_pool(node, **{name: value for name, value in options.items() if "dilation" not in name})
    result = Value(c.shapes[0], self.batch, lambda: made)
    if extended or (any(pair(padding)) and not count_include_pad):
        ones = torch.ones(1, 1, *self.shape[2:])
        arguments = (pair(kernel_size), pair(stride or kernel_size), pair(padding))
        plain = torch.nn.functional.avg_pool2d(ones, *arguments, bool(c.arguments.get("ceil_mode")), count_include_pad)
        (above, left), (height, width) = pair(padding), pair(kernel_size)
        wide = torch.nn.functional.pad(ones, [left, width, above, height])
        counted = torch.nn.functional.avg_pool2d(wide, *arguments[:2])[:, :, :plain.shape[2], :plain.shape[3]]
        result = binary(c, "multiply", result, c.constant(plain / counted))
    return result


@operator("max_pool1d", "avg_pool1d")
def pool1d(c, self, kernel_size, stride=(), padding=0, **_):
    lines = Value((*self.shape[:2], 1, self.shape[2]), self.batch, lambda: self.as_shape(
        c.builder, (self.shape[1], 1, self.shape[2])))
    wide = lambda value, other: (other, pair(value)[0])  # noqa: E731
    shape, c.shapes = c.shapes[0], [(*c.shapes[0][:2], 1, c.shapes[0][2])]
    pool = max_pool2d if c.name == "max_pool1d" else avg_pool2d
    c.name = "max_pool2d"
    made = pool(c, lines, wide(kernel_size, 1), wide(stride or kernel_size, 1), wide(padding, 0))
    return reshape_value(c, made, shape)


@operator("adaptive_avg_pool2d", "_adaptive_avg_pool2d")
def adaptive_avg_pool2d(c, self, output_size, **_):
    node = image(c, self, "a pool")
    if tuple(output_size) == (1, 1):
        made = c.builder.global_average_pool(node)
    elif tuple(output_size) == tuple(self.shape[2:]):
        return self
    else:
        made = c.builder.adaptive_average_pool(node, *output_size)
    return Value((*self.shape[:2], *output_size), self.batch, lambda: made)


@operator("adaptive_avg_pool1d")
def adaptive_avg_pool1d(c, self, output_size, **_):
    if tuple(output_size) != (1,):
        raise Unsupported("an adaptive pool over a sequence to more than one place")
    return reduce(c, self, "mean", [-1], True)


@operator("upsample_nearest2d", "upsample_bilinear2d")
def upsample(c, input, align_corners=False, **_):
    mode = "nearest" if "nearest" in c.name else "bilinear-corners" if align_corners else "bilinear"
    made = c.builder.upsample(image(c, input, "upsampling"), *c.shapes[0][2:], mode)
    return Value(c.shapes[0], input.batch, lambda: made)


@operator("pixel_shuffle", "pixel_unshuffle")
def pixel_shuffle(c, self, upscale_factor=None, downscale_factor=None, **_):
    factor = upscale_factor or downscale_factor
    made = getattr(c.builder, c.name)(image(c, self, "a pixel shuffle"), factor)
    return Value(c.shapes[0], self.batch, lambda: made)


# Dropout, embeddings, attention, recurrent layers.

@operator("dropout", "native_dropout", "feature_dropout")
def dropout(c, input, p=0.5, train=True, **_):
    if not train or p == 0:
        return [input, None] if c.name == "native_dropout" else input
    if p == 1:
        raise Unsupported("dropout of everything")
    call = c.builder.dropout2d if c.name == "feature_dropout" else c.builder.dropout
    made = c.map(input, lambda node: call(node, p))
    return [made, None] if c.name == "native_dropout" else made


@operator("embedding")
def embedding(c, weight, indices, **_):
    shape = (*indices.shape, weight.shape[1])
    if indices.constant is not None:
        return c.rows_of_table(weight, indices.constant.to(torch.int64), shape)
    if c.is_input(indices) and weight.parameter and c.looked_up(weight) == 1:
        options = c.layer(weight, {"weight": weight}, count=weight.shape[0], features=weight.shape[1], share=False)
        made = c.builder.embedding(indices.base.node, **options)
    else:  # several lookups in one table, or computed ids: a product with ones at the ids
        made = c.builder.index_select(weight.as_shape(c.builder, weight.shape),
                                      indices.as_shape(c.builder, (product(indices.row),)))
    return Value(shape, indices.batch, lambda: made)


@operator("scaled_dot_product_attention")
def attention(c, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False, **_):
    heads, positions, size = query.shape[-3:] if len(query.shape) > 3 else (1, *query.shape[-2:])
    usual = scale is None or abs(scale * math.sqrt(size) - 1) < 1e-6
    plain = attn_mask is None and usual and not dropout_p
    packed = packed_attention(c, query, key, value, heads, positions, size) if plain else None
    if packed is not None:
        made = c.builder.attention(packed, heads=heads, causal=is_causal)  # [positions, heads * size]
        node = permuted_heads(c, made, positions, heads, size)
        strides = torch.empty(positions, heads, size, device="meta").permute(1, 0, 2)
        return Value(query.shape, query.batch, node, lazy=True,
                     view=(Value((positions, heads * size), None, lambda: made), strides))
    sides = [side.as_shape(c.builder, (product(side.row[:-2]), *side.row[-2:])) for side in (query, key, value)]
    if scale is not None and not usual:
        sides[0] = c.builder.scale(sides[0], scale * math.sqrt(size))
    mask = None
    if is_causal:
        mask = c.builder.causal_mask(positions)
    elif attn_mask is not None:
        mask = additive_mask(c, attn_mask, query, sides[0].shape[0])
    made = attend_with_dropout(c, *sides, mask, dropout_p) if dropout_p else c.builder.attend(*sides, mask)
    return Value((*query.shape[:-1], value.shape[-1]), query.batch, lambda: made)


def attend_with_dropout(c, queries, keys, values, mask, probability):
    """The library's attention has no dropout of the weights: the same by its parts."""
    scores = c.builder.matmul(queries, keys, False, True)
    scores = c.builder.scale(scores, 1 / math.sqrt(queries.shape[2]))
    scores = scores if mask is None else c.builder.add(scores, mask)
    shape = scores.shape
    weights = c.builder.softmax(c.builder.reshape(scores, (shape[0] * shape[1], shape[2])))
    return c.builder.matmul(c.builder.reshape(c.builder.dropout(weights, probability), shape), values, False, False)


def permuted_heads(c, node, positions, heads, size):
    return lambda: c.builder.transpose(c.builder.reshape(node, (positions, heads, size)), "channels", "height")


def packed_attention(c, query, key, value, heads, positions, size):
    """A sequence [positions, 3 * heads * size] of queries, keys and values, where they are views of such sequences."""
    width = heads * size
    if query.shape != key.shape or key.shape != value.shape or query.batch is None or query.batch[1:] != (1, 1):
        return None
    sources = []
    for side in (query, key, value):
        if side.view is None:
            return None
        strides = side.view
        if tuple(strides.shape) != (heads, positions, size):
            return None
        step = strides.stride(1) if positions > 1 else width
        if (heads > 1 and strides.stride(0) != size) or (size > 1 and strides.stride(2) != 1):
            return None
        sources.append((side.base, step, strides.storage_offset()))
    beside = [(step, offset) for _, step, offset in sources] == [(3 * width, k * width) for k in range(3)]
    if beside and len({id(base) for base, _, _ in sources}) == 1:
        base = sources[0][0]
        if product(base.row) == positions * 3 * width:
            return base.as_shape(c.builder, (positions, 3 * width))
    nodes = []
    for base, step, offset in sources:
        total = product(base.row)
        if step < width or total != positions * step or offset + width > step:
            return None
        node = base.as_shape(c.builder, (positions, step))
        nodes.append(node if step == width else c.builder.slice(node, "channels", offset, offset + width, 0.0))
    return c.builder.concat(c.builder.concat(nodes[0], nodes[1]), nodes[2])


def additive_mask(c, mask: Value, query: Value, heads: int):
    """What attention adds to the scores: an image [1 or heads, positions or 1, others]."""
    if mask.constant is not None:
        values = mask.constant
        if values.dtype == torch.bool:
            values = torch.where(values, 0.0, -1e30)
        mask = c.constant(values.float().clamp(min=-1e30))
    elif str(c.dtype_of("attn_mask")) == "torch.bool":
        mask = c.map(mask, lambda node: c.builder.scale(c.builder.offset(node, -1), 1e30))
    sizes = [1] * (len(query.shape) - len(mask.shape)) + list(mask.shape)
    if mask.batch is None:
        if sizes[0] == c.rows and mask.constant is not None:
            mask = c.constant(mask.constant[:1])
        sizes[0] = 1
        row = sizes[1:]
    else:
        row = mask.row
    return mask.as_shape(c.builder, (product(row[:-2]), *row[-2:]))


@operator("lstm", "gru")
def recurrent(c, input, hx, params, has_biases, num_layers, dropout, bidirectional, train=True, **_):
    for state in hx if isinstance(hx, (list, tuple)) else [hx]:
        if state.constant is None or bool(state.constant.any()):
            raise Unsupported("a first state other than zeros")
    ways = 2 if bidirectional else 1
    each = 4 if has_biases else 2
    if len(params) != num_layers * ways * each:
        raise Unsupported("a recurrent layer with projections")
    hidden = params[1].shape[1]
    call = c.builder.lstm if c.name == "lstm" else c.builder.gru
    prefix = params[0].parameter.removesuffix("weight_ih_l0").rstrip(".")
    node, last = input.as_shape(c.builder, input.row), []
    for layer in range(num_layers):  # each by itself, so that its last state can be taken
        mine = params[layer * ways * each:(layer + 1) * ways * each]
        words = [f"{word}_l0{way}" for way in ("", "_reverse")[:ways]
                 for word in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")[:each]]
        name = c.free_name(f"{prefix}#{layer}" if num_layers > 1 else prefix)
        c.rename(name, dict(zip(words, mine)))
        node = call(node, name=name, hidden=hidden, layers=1, bidirectional=bool(bidirectional), no_bias=not has_biases)
        last.append(node)
        if dropout and train and layer < num_layers - 1:
            node = c.builder.dropout(node, dropout)
    outputs = Value(c.shapes[0], input.batch, lambda: node)
    return [outputs, Value(c.shapes[1], (1, 1, 1), lambda: last_states(c, last, ways, hidden), lazy=True)]


def last_states(c, layers, ways: int, hidden: int):
    """[layers * directions, hidden]: the states behind the last position that each direction reads."""
    made = None
    for node in layers:
        positions = node.shape[0]
        for way in range(ways):
            place = positions - 1 if way == 0 else 0
            state = c.builder.slice(node, "height", place, place + 1, 0.0)
            if ways == 2:
                state = c.builder.slice(state, "channels", way * hidden, (way + 1) * hidden, 0.0)
            made = state if made is None else c.builder.concat_along(made, state, "height")
    return made

