# SPDX-License-Identifier: Apache-2.0
"""The models of the races against PyTorch, with the names of torchvision and of openai-community/gpt2."""
import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 10
TOKENS = 65  # the vocabulary of texts, unless a setup has another


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
    def __init__(self, blocks, width, bottleneck, large):
        super().__init__()
        self.conv1 = convolution(3, width, 7 if large else 3, 2 if large else 1)
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
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x)), inplace=True))
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 1024), nn.Linear(1024, 1024), nn.Linear(1024, CLASSES)

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

    def __init__(self, tokens, context, layers=4, width=128, heads=4):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(TransformerBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight).flatten(0, 1)


class LstmChar(nn.Module):
    CONTEXT = 64

    def __init__(self, tokens, context, layers=1, width=128, embedding=64):
        super().__init__()
        self.embedding = nn.Embedding(tokens, embedding)
        self.lstm = nn.LSTM(embedding, width, layers, batch_first=True)
        self.head = nn.Linear(width, tokens)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[0]).flatten(0, 1)


def of_torchvision(name, **options):
    """Without dropout, whose masks are each side's own."""
    from torchvision import models  # only these races need it
    return getattr(models, name)(num_classes=CLASSES, **options)


def vit_tiny():
    from torchvision import models
    return models.VisionTransformer(image_size=32, patch_size=4, num_layers=12, num_heads=3, hidden_dim=192,
                                    mlp_dim=768, num_classes=CLASSES)


MODELS = {"mlp": Mlp,
          "resnet18": lambda: ResNet((2, 2, 2, 2), 64, False, True),
          "resnet18-cifar": lambda: ResNet((2, 2, 2, 2), 64, False, False),
          "resnet50": lambda: ResNet((3, 4, 6, 3), 64, True, True),
          "resnet20": lambda: ResNet((3, 3, 3), 16, False, False),
          "vgg11_bn:dropout=0": lambda: of_torchvision("vgg11_bn", dropout=0.0),
          "mobilenet_v2:dropout=0": lambda: of_torchvision("mobilenet_v2", dropout=0.0),
          "vit_tiny": vit_tiny,
          "resnext50": lambda: of_torchvision("resnext50_32x4d"),
          "densenet121": lambda: of_torchvision("densenet121"),
          "efficientnet_b0:dropout=0,stochastic_depth=0": lambda: of_torchvision("efficientnet_b0", dropout=0.0,
                                                                                stochastic_depth_prob=0.0),
          "convnext_tiny:stochastic_depth=0": lambda: of_torchvision("convnext_tiny", stochastic_depth_prob=0.0)}


TEXTS = {"gpt2": Gpt2, "lstm-char": LstmChar}


def reads_text(setup):
    return setup.model.partition(":")[0] in TEXTS


def context_of(setup):
    return setup.side or TEXTS[setup.model.partition(":")[0]].CONTEXT


def make_model(setup):
    """Models of texts may have the options of Yoke's presets: gpt2:layers=12,width=768,heads=12."""
    if not reads_text(setup):
        return MODELS[setup.model]()
    name, _, words = setup.model.partition(":")
    options = (option.split("=") for option in words.split(",") if option)
    return TEXTS[name](setup.classes or TOKENS, context_of(setup), **{key: int(value) for key, value in options})


def input_of(setup, values):
    """The values of a batch [rows, channels, side, side], of text [rows, tokens]."""
    if reads_text(setup):
        return values.view(-1, context_of(setup)).long()
    channels, usual = (1, 28) if setup.model == "mlp" else (3, 32)
    side = setup.side or usual
    return values.view(-1, channels, side, side).clone()
