# SPDX-License-Identifier: Apache-2.0
"""An exchange in Python: a function that makes the sums of gradients, on numpy arrays; yoke/custom_exchange.h."""
from __future__ import annotations

import ctypes
from typing import Callable

import numpy

from .._library import TYPES, _error, callback, make

BUCKET = TYPES["yoke_bucket_gradients"]
SEND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)


class Bucket:
    """The gradients of a bucket: devices, count, bucket, gradients and inboxes (an array of each device)."""

    def __init__(self, address: int):
        view = BUCKET.from_address(address)
        self.devices, self.count, self.bucket = view.devices, view.count, view.bucket
        self.gradients, self.inboxes = self._arrays(view.gradients), self._arrays(view.inboxes)
        self._address, self._whole, self._narrow = address, SEND(view.send), SEND(view.send_bfloat16)

    def _arrays(self, address: int) -> list[numpy.ndarray]:
        places = (ctypes.c_void_p * self.devices).from_address(address)
        return [numpy.frombuffer((ctypes.c_float * self.count).from_address(place), numpy.float32) for place in places]

    def _send(self, function, sender: int, to: int, first: int, count: int) -> None:
        if min(first, count) < 0:
            raise ValueError(f"a send of {count} elements from {first} on")
        status = function(self._address, sender, to, first, count)
        if status:
            raise _error(status)

    def send(self, sender: int, to: int, first: int, count: int) -> None:
        """Copies elements of the sender's gradients to the same place in the inbox of device `to`."""
        self._send(self._whole, sender, to, first, count)

    def send_bfloat16(self, sender: int, to: int, first: int, count: int) -> None:
        """The same, rounded to bfloat16 on the way."""
        self._send(self._narrow, sender, to, first, count)


class Exchange:
    """What an engine needs of the function; lives as long as the engine."""

    def __init__(self, function: Callable[[Bucket], object]):
        self._callback = callback(lambda _payload, address: function(Bucket(address)), ctypes.c_void_p, ctypes.c_void_p)
        self.struct = make("yoke_custom_exchange", "YOKE_CUSTOM_EXCHANGE_INIT")
        self.struct.all_reduce = ctypes.cast(self._callback, ctypes.c_void_p)
        self.address = ctypes.addressof(self.struct)
