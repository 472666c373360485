"""PyTorch's side of the race: models with torchvision's names, and ways to take a training step."""
import time

import torch
import torch.nn.functional as F
from torch import nn

CLASSES, LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 10, 1e-3, 0.9, 5e-4  # as `yoke bench`


# Models, with torchvision's names.


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


def of_torchvision(name):
    """Without dropout, whose masks are each side's own."""
    from torchvision import models  # only these races need it
    return getattr(models, name)(num_classes=CLASSES, dropout=0.0)


MODELS = {"mlp": Mlp,
          "resnet18-cifar": lambda: ResNet((2, 2, 2, 2), 64, False, False),
          "resnet50": lambda: ResNet((3, 4, 6, 3), 64, True, True),
          "resnet20": lambda: ResNet((3, 3, 3), 16, False, False),
          "vgg11_bn:dropout=0": lambda: of_torchvision("vgg11_bn"),
          "mobilenet_v2:dropout=0": lambda: of_torchvision("mobilenet_v2")}


# What `yoke bench --drive` writes.


def read_weights(path, tensors):
    """{state_dict name: flat tensor}; tensors: [name, count] in the order of the file"""
    with open(path, "rb") as file:
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    return dict(zip((name for name, _ in tensors), torch.split(values, [count for _, count in tensors])))


def read_batch(path, values, setup):
    """inputs of as many values [rows, channels, side, side], labels"""
    with open(path, "rb") as file:
        data = bytearray(file.read())
    inputs = torch.frombuffer(data, dtype=torch.float32, count=values)
    labels = torch.frombuffer(data, dtype=torch.int32, offset=4 * values)
    mlp = setup.model == "mlp"
    side = setup.side or (28 if mlp else 32)
    return inputs.view(-1, 1 if mlp else 3, side, side).clone(), labels.long()


# PyTorch's contenders.


class Eager:
    """A training step as PyTorch's tutorials write it, at its best settings: the batch comes from
    pinned memory without waiting, the optimizer is fused, nothing asks for the loss."""

    def __init__(self, setup, work, channels_last=False):
        self.setup, self.cuda = setup, torch.cuda.is_available() and not work.fake
        self.device = "cuda" if self.cuda else "cpu"
        self.format = torch.channels_last if channels_last else torch.contiguous_format
        self.set_precision()
        self.model = MODELS[setup.model]()
        load(self.model, work.weights)
        self.model = self.model.to(self.device, memory_format=self.format)
        self.inputs = self.pinned(work.inputs.contiguous(memory_format=self.format))
        self.labels = self.pinned(work.labels)
        self.optimizer = torch.optim.SGD(self.model.parameters(), LEARNING_RATE, MOMENTUM,
                                         weight_decay=WEIGHT_DECAY, **({"fused": True} if self.cuda else {}))
        self.call = self.model

    def set_precision(self):
        tf32 = self.setup.precision != "float32"
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = True

    def pinned(self, tensor):
        return tensor.pin_memory() if self.cuda else tensor

    def loss(self, inputs, labels):
        half = self.setup.precision == "bfloat16"
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=half):
            return F.cross_entropy(self.call(inputs), labels)

    def step(self):
        inputs = self.inputs.to(self.device, non_blocking=True)
        labels = self.labels.to(self.device, non_blocking=True)
        loss = self.loss(inputs, labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def losses(self, count):
        self.set_precision()
        return [self.step().item() for _ in range(count)]

    def steps(self, count):
        """Milliseconds of one of `count` steps: by the GPU's clock, with a wait at the end alone."""
        self.set_precision()
        if not self.cuda:
            begin = time.monotonic()
            for _ in range(count):
                self.step()
            return (time.monotonic() - begin) * 1e3 / count
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(count):
            self.step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / count


class DataParallel(Eager):
    """nn.DataParallel with all replicas on one GPU."""

    def __init__(self, setup, work):
        super().__init__(setup, work)
        self.call = nn.DataParallel(self.model, device_ids=[0] * setup.devices)


class Compiled(Eager):
    """torch.compile, max-autotune, of the model and its loss."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=setup.model != "mlp")
        self.compiled = torch.compile(super().loss, mode="max-autotune")

    def loss(self, inputs, labels):
        torch.compiler.cudagraph_mark_step_begin()
        return self.compiled(inputs, labels)


class Graph(Eager):
    """The whole step in one CUDA graph; only the batch is copied in from outside."""

    def __init__(self, setup, work):
        super().__init__(setup, work, channels_last=setup.model != "mlp")
        self.static_inputs = self.inputs.to(self.device)
        self.static_labels = self.labels.to(self.device)
        self.capture()
        load(self.model, work.weights)
        for state in self.optimizer.state.values():
            state["momentum_buffer"].zero_()

    def update(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.static_inputs, self.static_labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def capture(self):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(11):
                self.update()
        torch.cuda.current_stream().wait_stream(aside)
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.static_loss = self.update()

    def step(self):
        self.static_inputs.copy_(self.inputs, non_blocking=True)
        self.static_labels.copy_(self.labels, non_blocking=True)
        self.graph.replay()
        return self.static_loss


def load(model, weights):
    """In place: what is captured or compiled goes on with the same memory."""
    state = model.state_dict()
    with torch.no_grad():
        for name, tensor in state.items():
            if name.endswith("num_batches_tracked"):
                tensor.zero_()
            else:
                tensor.copy_(weights[name].view(tensor.shape))
