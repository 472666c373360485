# SPDX-License-Identifier: Apache-2.0
"""main.c in PyTorch: the same data, initial weights and loop."""
import math

import torch
from torch.nn.functional import smooth_l1_loss

ROWS, FEATURES, HIDDEN, OUTPUTS, STEPS = 48, 6, 24, 2, 200


def fill(shape, stream, scale):
    count = math.prod(shape)
    values = [scale * math.sin(1.7 * i + 0.9 * i * i + stream) for i in range(count)]
    return torch.tensor(values, dtype=torch.float32).reshape(shape)


inputs = fill((ROWS, FEATURES), 100, 1)
targets = torch.stack([2 * inputs[:, 0] * inputs[:, 1], 3 * inputs[:, 2] - inputs[:, 3]], dim=1)

fc1, fc2 = torch.nn.Linear(FEATURES, HIDDEN), torch.nn.Linear(HIDDEN, OUTPUTS)
model = torch.nn.Sequential(fc1, torch.nn.ReLU(), fc2)
for stream, parameter in enumerate(model.parameters()):
    parameter.data = fill(parameter.shape, stream, 0.4)
model = torch.nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(1, STEPS + 1):
    outputs = model(inputs)
    loss = smooth_l1_loss(outputs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 1 or step % 40 == 0:
        print(f"step {step:3}  loss {loss.item():.5f}")
