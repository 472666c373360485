# SPDX-License-Identifier: Apache-2.0
"""Drawn photographs, for benchmarks of loading."""
import numpy as np
from PIL import Image


def draw_photographs(folder, classes, each, side):
    """JPEG files of side x side * 4 / 3, in a folder for each class: waves and noise, with about as many bytes a pixel
    as a photograph."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:side, 0:side * 4 // 3]
    for label in range(classes):
        (folder / str(label)).mkdir(parents=True)
        for i in range(each):
            waves = np.stack([128 + 90 * np.sin(x / (9 + i % 7) + label), 128 + 90 * np.cos(y / (7 + i % 5)),
                              128 + 80 * np.sin((x + y) / 13)], -1)
            pixels = (waves + rng.normal(0, 12, waves.shape)).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / str(label) / f"{i}.jpg", quality=85)
