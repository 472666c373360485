# SPDX-License-Identifier: Apache-2.0
"""How far a run is: one line that changes on a terminal, a line an epoch elsewhere, and a table in a notebook."""
from __future__ import annotations

import html
import sys
import time
from typing import Any, TextIO

REDRAW_SECONDS = 0.1


def progress_for(wanted: Any, epochs: int):
    """The display for progress=True, False or a file; None: show nothing."""
    if wanted is False or wanted is None:
        return None
    if wanted is True:
        if _in_kernel():
            return Notebook(epochs)
        wanted = sys.stderr
    return Terminal(epochs, wanted) if getattr(wanted, "isatty", lambda: False)() else Lines(epochs, wanted)


def _in_kernel() -> bool:
    """Whether this Python is a kernel of IPython, whose cells show HTML; without importing it."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None and hasattr(found, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


def epoch_text(event: dict[str, Any], epochs: int) -> str:
    """epoch 2/3  loss 0.4384  81.7 %  test loss 0.3313  83.6 %  12345 rows/s"""
    parts = [f"epoch {event['epoch'] + 1}" + (f"/{epochs}" if epochs else ""), *_measured(event, "", "loss")]
    parts += _measured(event, "test_", "test loss")
    if event.get("images_per_second"):
        parts.append(f"{event['images_per_second']:.0f} rows/s")
    return "  ".join(parts)


def _measured(event: dict[str, Any], prefix: str, word: str) -> list[str]:
    loss, accuracy = event.get(f"{prefix}loss"), event.get(f"{prefix}accuracy")
    return ([f"{word} {loss:.4f}"] if loss is not None else []) + ([f"{100 * accuracy:.1f} %"] if accuracy is not None else [])


def step_text(event: dict[str, Any], epochs: int) -> str:
    parts = [f"epoch {event['epoch'] + 1}" + (f"/{epochs}" if epochs else "")]
    parts.append(f"step {event['step']}" + (f"/{event['steps']}" if event["steps"] else ""))
    parts += _measured(event, "", "loss")
    if event["step_ms"] > 0:
        parts.append(f"{event['rows'] / event['step_ms'] * 1e3:.0f} rows/s")
    return "  ".join(parts)


class Lines:
    """A line for every epoch: files, pipes, logs."""

    def __init__(self, epochs: int, file: TextIO):
        self.epochs, self.file = epochs, file

    def __call__(self, event: dict[str, Any]) -> None:
        if event["kind"] == "epoch":
            self.write_line(epoch_text(event, self.epochs))
        elif event["kind"] in ("stopped", "lost", "joined", "resized", "resumed"):
            self.write_line(event["text"])

    def write_line(self, text: str) -> None:
        print(text, file=self.file, flush=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""


class Terminal(Lines):
    """And between them one line that changes."""

    def __init__(self, epochs: int, file: TextIO):
        super().__init__(epochs, file)
        self.drawn, self.width = 0.0, 0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["kind"] == "step" and time.monotonic() - self.drawn > REDRAW_SECONDS:
            self.drawn = time.monotonic()
            self._draw(step_text(event, self.epochs))
        super().__call__(event)

    def _draw(self, text: str) -> None:
        text = text[:100]
        self.file.write("\r" + text.ljust(self.width))
        self.file.flush()
        self.width = len(text)

    def write_line(self, text: str) -> None:
        self.close()
        super().write_line(text)

    def close(self) -> None:
        if self.width:
            self.file.write("\r" + " " * self.width + "\r")
            self.file.flush()
            self.width = 0


class Notebook(Lines):
    """A table of epochs with a bar, which the cell's display handle redraws; its text is that of a terminal."""

    COLUMNS = (("epoch", "epoch"), ("loss", "loss"), ("accuracy", "accuracy"), ("test_loss", "test loss"),
               ("test_accuracy", "test accuracy"))

    def __init__(self, epochs: int):
        super().__init__(epochs, sys.stdout)
        self.rows: list[dict[str, Any]] = []
        self.now, self.handle, self.drawn = "", None, 0.0

    def __call__(self, event: dict[str, Any]) -> None:
        if event["kind"] == "step":
            self.now = step_text(event, self.epochs)
            if time.monotonic() - self.drawn < 2 * REDRAW_SECONDS:
                return
        elif event["kind"] == "epoch":
            self.rows.append(event)
        else:
            return
        self._draw()

    def _draw(self) -> None:
        from IPython.display import display  # what runs is its kernel
        self.drawn = time.monotonic()
        shown = {"text/plain": self.text(), "text/html": self.html()}
        if self.handle is None:
            self.handle = display(shown, raw=True, display_id=True)
        else:
            self.handle.update(shown, raw=True)

    def text(self) -> str:
        return "\n".join([epoch_text(event, self.epochs) for event in self.rows] + ([self.now] if self.now else []))

    def html(self) -> str:
        shown = [(key, title) for key, title in self.COLUMNS
                 if key == "epoch" or any(event.get(key) is not None for event in self.rows)]
        head = "".join(f"<th>{title}</th>" for _, title in shown)
        lines = "".join("<tr>" + "".join(f"<td>{_cell(key, event.get(key))}</td>" for key, _ in shown) + "</tr>"
                        for event in self.rows)
        bar = f'<progress max="{self.epochs}" value="{len(self.rows)}"></progress> ' if self.epochs else ""
        return f"<table><tr>{head}</tr>{lines}</table>{bar}{html.escape(self.now)}"

    def close(self) -> None:
        self.now = ""
        if self.rows:
            self._draw()


def _cell(key: str, value) -> str:
    if value is None:
        return ""
    if key == "epoch":
        return str(value + 1)
    return f"{100 * value:.1f} %" if "accuracy" in key else f"{value:.4f}"
