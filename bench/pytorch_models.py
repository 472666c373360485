# SPDX-License-Identifier: Apache-2.0
"""The models of the races against PyTorch, with the names of torchvision and of openai-community/gpt2. `yoke compare
--with-torch` brings this file along."""
import collections

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10
TOKENS = 65  # the vocabulary of texts, unless a setup has another
Row = collections.namedtuple("Row", "classes channels height width")  # of text: height tokens of so many classes


class NoModel(Exception):
    """Why PyTorch has no such model here."""


def convolution(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck, project):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        first = 1 if bottleneck else stride
        self.conv1 = convolution(inputs, width, 1 if bottleneck else 3, first)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride if bottleneck else 1)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1, 1) if bottleneck else None
        self.bn3 = nn.BatchNorm2d(outputs) if bottleneck else None
        self.downsample = nn.Sequential(convolution(inputs, outputs, 1, stride),
                                        nn.BatchNorm2d(outputs)) if project else None
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        if self.conv3 is not None:
            y = self.bn3(self.conv3(self.relu(y)))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, row, blocks, width, bottleneck, large):
        super().__init__()
        self.conv1 = convolution(row.channels, width, 7 if large else 3, 2 if large else 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        channels = width
        for stage, count in enumerate(blocks):
            layers = []
            for i in range(count):
                project = i == 0 and (stage > 0 or bottleneck)
                stride = 2 if i == 0 and stage > 0 else 1
                layers.append(Block(channels, width << stage, stride, bottleneck, project))
                channels = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.stages = len(blocks)
        self.fc = nn.Linear(channels, row.classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Mlp(nn.Module):
    def __init__(self, row, width=1024):
        super().__init__()
        self.fc1 = nn.Linear(row.channels * row.height * row.width, width)
        self.fc2, self.fc3 = nn.Linear(width, width), nn.Linear(width, row.classes)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))))


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out]."""
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_in, features_out))
        self.bias = nn.Parameter(torch.empty(features_out))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.c_attn, self.c_proj = heads, Conv1D(width, 3 * width), Conv1D(width, width)

    def forward(self, x):
        rows, length, width = x.shape
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2)
                             for part in self.c_attn(x).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.c_proj(mixed.transpose(1, 2).reshape(rows, length, width))


class Perceptron(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(width, 4 * width), Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(width), Attention(width, heads)
        self.ln_2, self.mlp = nn.LayerNorm(width), Perceptron(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """With the names of openai-community/gpt2; the head's weights are those of the tokens' embedding."""
    CONTEXT = 128  # the length of a row, unless a setup has another

    def __init__(self, row, layers=4, width=128, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(row.classes, width), nn.Embedding(row.height, width)
        self.h = nn.ModuleList(TransformerBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


class LstmChar(nn.Module):
    CONTEXT = 64

    def __init__(self, row, layers=1, width=128, embedding=64):
        super().__init__()
        self.embedding = nn.Embedding(row.classes, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.head = nn.Linear(width, row.classes)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0]).flatten(0, 1)


def of_torchvision(name, **fixed):
    """Images of three channels; without dropout, whose masks are each side's own."""
    def make(row):
        try:
            from torchvision import models  # only these models need it
        except ImportError as error:
            raise NoModel(f"it is torchvision's, which cannot be imported ({error})") from error
        if row.channels != 3:
            raise NoModel(f"torchvision's {name} reads three channels, not {row.channels}")
        return getattr(models, name)(num_classes=row.classes, **fixed)
    return make


def vit_tiny(row):
    patch = 4 if row.height < 128 else 16
    return of_torchvision("VisionTransformer", image_size=row.height, patch_size=patch, num_layers=12, num_heads=3,
                          hidden_dim=192, mlp_dim=768)(row)


def resnet(*form):
    return lambda row: ResNet(row, *form)


MODELS = {"mlp": Mlp, "gpt2": Gpt2, "lstm-char": LstmChar,
          "resnet18": resnet((2, 2, 2, 2), 64, False, True), "resnet18-cifar": resnet((2, 2, 2, 2), 64, False, False),
          "resnet34": resnet((3, 4, 6, 3), 64, False, True), "resnet34-cifar": resnet((3, 4, 6, 3), 64, False, False),
          "resnet50": resnet((3, 4, 6, 3), 64, True, True), "resnet50-cifar": resnet((3, 4, 6, 3), 64, True, False),
          "resnet20": resnet((3, 3, 3), 16, False, False), "resnet32": resnet((5, 5, 5), 16, False, False),
          "resnet44": resnet((7, 7, 7), 16, False, False), "resnet56": resnet((9, 9, 9), 16, False, False),
          "vgg11_bn": of_torchvision("vgg11_bn", dropout=0.0),
          "mobilenet_v2": of_torchvision("mobilenet_v2", dropout=0.0),
          "vit_tiny": vit_tiny,
          "resnext50": of_torchvision("resnext50_32x4d"),
          "densenet121": of_torchvision("densenet121"),
          "efficientnet_b0": of_torchvision("efficientnet_b0", dropout=0.0, stochastic_depth_prob=0.0),
          "convnext_tiny": of_torchvision("convnext_tiny", stochastic_depth_prob=0.0)}
# What chances Yoke's presets have unless the options say otherwise.
CHANCES = {"mlp-dropout": {"dropout": "0.5"}, "vgg11_bn": {"dropout": "0.5"}, "mobilenet_v2": {"dropout": "0.2"},
           "efficientnet_b0": {"dropout": "0.2", "stochastic_depth": "0.2"},
           "convnext_tiny": {"stochastic_depth": "0.1"}}
TEXTS = {"gpt2": Gpt2, "lstm-char": LstmChar}


def options_of(model):
    """(name, {option: text}) of "gpt2:layers=12,width=768" """
    name, _, words = model.partition(":")
    return name, dict(option.partition("=")[::2] for option in words.split(",") if option)


def network(model, row):
    """The module that computes what Yoke's preset computes, with the names of its tensors."""
    name, options = options_of(model)
    options = {**CHANCES.get(name, {}), **options}
    drawn = [key for key in ("dropout", "stochastic_depth") if float(options.pop(key, 0)) > 0]
    if drawn:
        raise NoModel(f"PyTorch draws other random numbers; --model {name}:" + ",".join(f"{key}=0" for key in drawn))
    name = "mlp" if name == "mlp-dropout" else name
    if name not in MODELS:
        raise NoModel("there are " + ", ".join(sorted(MODELS)))
    try:
        return MODELS[name](row, **{key: int(value) for key, value in options.items()})
    except (TypeError, ValueError) as error:
        raise NoModel(f"PyTorch's {name} has not all of these options ({error})") from error


def reads_text(setup):
    return options_of(setup.model)[0] in TEXTS


def context_of(setup):
    return setup.side or TEXTS[options_of(setup.model)[0]].CONTEXT


def row_of(setup):
    if reads_text(setup):
        return Row(setup.classes or TOKENS, 1, context_of(setup), 1)
    channels, usual = (1, 28) if setup.model == "mlp" else (3, 32)
    return Row(CLASSES, channels, setup.side or usual, setup.side or usual)


def make_model(setup):
    """Models of texts may have the options of Yoke's presets: gpt2:layers=12,width=768,heads=12."""
    return network(setup.model, row_of(setup))


def input_of(setup, values):
    """The values of a batch [rows, channels, side, side], of text [rows, tokens]."""
    row = row_of(setup)
    if reads_text(setup):
        return values.view(-1, row.height).long()
    return values.view(-1, row.channels, row.height, row.width).clone()
