# SPDX-License-Identifier: Apache-2.0
"""Modules of PyTorch as files of ONNX, for tests and benchmarks."""
import contextlib
import io

import torch


def export(module, inputs, path, dynamo):
    """By either of PyTorch's exporters, in training mode where it allows that; what it prints is not shown."""
    names = [f"x{index}" for index in range(len(inputs))]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        if dynamo:
            rows = torch.export.Dim("rows", min=2, max=4096)
            torch.onnx.export(module, inputs, path, dynamo=True, input_names=names, external_data=False,
                              dynamic_shapes=tuple({0: rows} for _ in inputs))
        else:
            torch.onnx.export(module, inputs, path, dynamo=False, input_names=names, opset_version=17,
                              training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
                              dynamic_axes={name: {0: "rows"} for name in names})
