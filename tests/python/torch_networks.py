# SPDX-License-Identifier: Apache-2.0
"""Small networks in plain PyTorch, as people write them, for test_from_torch.py and bench/from_torch_zoo.py: each function
returns a module without random parts, its inputs, its labels and the word of its loss."""
import math

import torch
from torch import nn
from torch.nn import functional as F


def images(rows, channels=3, size=16):
    return torch.randn(rows, channels, size, size)


def ids(rows, positions=12, words=29):
    return torch.randint(0, words, (rows, positions))


def classes(rows, count=10):
    return torch.randint(0, count, (rows,))


def mlp(rows=8):
    module = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 10))
    return module, (torch.randn(rows, 20),), classes(rows), "cross-entropy"


class Residual(nn.Module):
    def __init__(self, channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels * stride, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels * stride)
        self.conv2 = nn.Conv2d(channels * stride, channels * stride, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels * stride)
        self.down = nn.Conv2d(channels, channels * stride, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        y = self.bn2(self.conv2(y))
        y += self.down(x)
        return F.relu(y)


def residual_cnn(rows=16):
    module = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), Residual(8), Residual(8, 2),
                           nn.MaxPool2d(2, ceil_mode=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
    return module, (images(rows),), classes(rows), "cross-entropy"


class CausalAttention(nn.Module):
    """With a mask in a buffer, as GPT's first programs have it."""

    def __init__(self, width, heads, context, fused):
        super().__init__()
        self.c_attn, self.c_proj, self.heads, self.fused = nn.Linear(width, 3 * width), nn.Linear(width, width), heads, fused
        self.register_buffer("bias", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        rows, length, width = x.size()
        q, k, v = (part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
                   for part in self.c_attn(x).split(width, dim=2))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            scores = scores.masked_fill(self.bias[:, :, :length, :length] == 0, float("-inf"))
            y = F.softmax(scores, dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).contiguous().view(rows, length, width))


class GPT(nn.Module):
    def __init__(self, words=29, context=16, width=32, heads=4, layers=2, fused=True):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "ln_1": nn.LayerNorm(width), "attn": CausalAttention(width, heads, context, fused), "ln_2": nn.LayerNorm(width),
            "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width)),
        }) for _ in range(layers))
        self.ln_f, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, tokens):
        places = torch.arange(0, tokens.size(1), device=tokens.device)
        x = self.wte(tokens) + self.wpe(places)
        for block in self.blocks:
            x = x + block["attn"](block["ln_1"](x))
            x = x + block["mlp"](block["ln_2"](x))
        return self.head(self.ln_f(x))


def gpt(rows=4):
    return GPT(), (ids(rows),), ids(rows), "cross-entropy"


def gpt_by_hand(rows=4):
    return GPT(fused=False), (ids(rows),), ids(rows), "cross-entropy"


class Bert(nn.Module):
    """An encoder with segments and a mask of padding; its first position decides."""

    def __init__(self, words=29, context=16, width=32, heads=4, layers=2):
        super().__init__()
        self.word, self.place, self.segment = (nn.Embedding(n, width) for n in (words, context, 2))
        self.norm = nn.LayerNorm(width, eps=1e-12)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 3)
        self.register_buffer("position_ids", torch.arange(context).expand(1, -1))

    def forward(self, tokens, mask):
        x = self.word(tokens) + self.place(self.position_ids[:, :tokens.shape[1]])
        x = self.norm(x + self.segment(torch.zeros_like(tokens)))
        x = self.encoder(x, src_key_padding_mask=mask == 0)
        return self.classifier(torch.tanh(self.pooler(x[:, 0])))


def bert(rows=4):
    mask = (torch.arange(12)[None, :] < torch.randint(3, 13, (rows, 1))).float()
    return Bert(), (ids(rows), mask), classes(rows, 3), "cross-entropy"


class Tagger(nn.Module):
    def __init__(self, words=29, tags=7):
        super().__init__()
        self.words = nn.Embedding(words, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(24, tags)

    def forward(self, tokens):
        return self.tags(self.lstm(self.words(tokens))[0])


def lstm_tagger(rows=4):
    return Tagger(), (ids(rows),), ids(rows, words=7), "cross-entropy"


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.fc = nn.GRU(6, 10, num_layers=2, batch_first=True), nn.Linear(10, 10)

    def forward(self, x):
        return self.fc(self.gru(x)[1][-1])


def gru_classifier(rows=4):
    return LastState(), (torch.randn(rows, 9, 6),), classes(rows), "cross-entropy"


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        double = lambda before, after: nn.Sequential(  # noqa: E731
            nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))
        self.down1, self.down2, self.bottom = double(3, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2, self.right2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), double(4 * width, 2 * width)
        self.right1, self.out = double(3 * width, width), nn.Conv2d(width, 4, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.bottom(F.max_pool2d(two, 2))
        x = self.right2(torch.cat([self.up2(x), two], dim=1))
        x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.right1(torch.cat([x, one], dim=1)))


def unet(rows=4):
    return UNet(), (images(rows),), torch.randint(0, 4, (rows, 16, 16)), "cross-entropy"


class Denoiser(nn.Module):
    """A step of diffusion: noise in an image, and the step's number as sines."""

    def __init__(self, width=16):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.norm1, self.conv1 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, width), nn.Conv2d(width, width, 3, padding=1)
        self.norm3, self.qkv, self.proj = nn.GroupNorm(4, width), nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)
        self.last = nn.Conv2d(width, 3, 3, padding=1)

    def attend(self, x):
        rows, width, height, wide = x.shape
        q, k, v = self.qkv(self.norm3(x)).reshape(rows, 3, width, height * wide).unbind(1)
        weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(width), dim=-1)
        return x + self.proj((v @ weights.transpose(1, 2)).reshape(rows, width, height, wide))

    def forward(self, x, step):
        rates = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32) / 8)
        angles = step[:, None] * rates[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        x = self.first(x)
        y = self.conv1(F.silu(self.norm1(x))) + time[:, :, None, None]
        x = self.attend(x + self.conv2(F.silu(self.norm2(y))))
        return self.last(F.silu(x))


def denoiser(rows=4):
    return Denoiser(), (images(rows, size=8), torch.rand(rows) * 10), images(rows, size=8), "mse"


def gan_generator(rows=8):
    module = nn.Sequential(nn.ConvTranspose2d(12, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
                           nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
                           nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh())
    return module, (torch.randn(rows, 12, 1, 1),), images(rows), "mse"


def gan_discriminator(rows=8):
    module = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
                           nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
                           nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Flatten())
    return module, (images(rows),), torch.randint(0, 2, (rows, 1)).float(), "bce"


class Rms(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Llama(nn.Module):
    """RMS norm, rotary positions, grouped heads and a gate."""

    def __init__(self, words=29, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.embed, self.norm1, self.norm2, self.norm = nn.Embedding(words, width), Rms(width), Rms(width), Rms(width)
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, groups * self.size, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 48, bias=False) for _ in range(2))
        self.down, self.head = nn.Linear(48, width, bias=False), nn.Linear(width, words, bias=False)

    def rotate(self, x):
        rates = 10000 ** (-torch.arange(0, self.size, 2).float() / self.size)
        angles = torch.arange(x.shape[2]).float()[:, None] * rates[None]
        angles = torch.cat([angles, angles], dim=-1)
        left, right = x.chunk(2, dim=-1)
        return x * angles.cos() + torch.cat([-right, left], dim=-1) * angles.sin()

    def forward(self, tokens):
        x = self.embed(tokens)
        rows, length, width = x.shape
        y = self.norm1(x)
        q = self.rotate(self.q(y).view(rows, length, self.heads, self.size).transpose(1, 2))
        k = self.rotate(self.k(y).view(rows, length, self.groups, self.size).transpose(1, 2))
        v = self.v(y).view(rows, length, self.groups, self.size).transpose(1, 2)
        k, v = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, width)
        x = x + self.o(y)
        y = self.norm2(x)
        return self.head(self.norm(x + self.down(F.silu(self.gate(y)) * self.up(y))))


def llama(rows=4):
    return Llama(), (ids(rows),), ids(rows), "cross-entropy"


class Mixer(nn.Module):
    def __init__(self, width=16, patches=16):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 4, 4)
        self.norm1, self.norm2, self.norm = (nn.LayerNorm(width) for _ in range(3))
        self.tokens = nn.Sequential(nn.Linear(patches, 32), nn.GELU(), nn.Linear(32, patches))
        self.channels = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.stem(x).flatten(2).transpose(1, 2)
        x = x + self.tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channels(self.norm2(x))
        return self.head(self.norm(x).mean(dim=1))


def mixer(rows=4):
    return Mixer(), (images(rows),), classes(rows), "cross-entropy"


def sound(rows=8):
    """Dilated convolutions over a signal."""
    module = nn.Sequential(nn.Conv1d(2, 8, 5, padding=2), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
                           nn.Conv1d(8, 16, 3, padding=2, dilation=2, groups=2), nn.ELU(), nn.AdaptiveAvgPool1d(1),
                           nn.Flatten(), nn.Linear(16, 10))
    return module, (torch.randn(rows, 2, 32),), classes(rows), "cross-entropy"


class Translator(nn.Module):
    def __init__(self, words=29, width=32):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.transformer = nn.Transformer(width, 4, 2, 2, 64, 0.0, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.transformer(self.source(source), self.target(target), tgt_mask=mask,
                                          tgt_is_causal=True))


def translator(rows=4):
    return Translator(), (ids(rows, 10), ids(rows)), ids(rows), "cross-entropy"


NETWORKS = (mlp, residual_cnn, gpt, gpt_by_hand, bert, lstm_tagger, gru_classifier, unet, denoiser, gan_generator,
            gan_discriminator, llama, mixer, sound, translator)
