# SPDX-License-Identifier: Apache-2.0
"""The ranks of a run, seen from one of them, and torch.nn.parallel.DistributedDataParallel over them."""
from __future__ import annotations

import ctypes
import os
import weakref
from typing import TYPE_CHECKING, Any

import numpy

from .._library import LAYOUT, LIBRARY, make
from ..data_parallel import DataParallel

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._declared import DataParallelOptions

ELEMENTS = {"float32": "float32", "float64": "float64", "int64": "int64"}  # numpy's words: the library's


class ProcessGroup:
    """The processes that train together, as a launcher's variables describe them: yoke.launch, torchrun, mpirun or srun.
    Without a launcher it is a group of one.

    devices: as of yoke.DataParallel, those of the machine: each rank opens its own; None: every GPU, or a CPU device each.
    transport, store, token, timeout_ms: as yoke_process_group_options.
    Collectives take contiguous float32, float64 or int64 arrays and change them in place; all ranks call the same ones in
    the same order. The last reference to the group, and to the models that use it, leaves it.
    """

    def __init__(self, devices: str | None = None, *, threads: int = 0, transport: str = "auto", store: str | None = None,
                 token: str | None = None, timeout_ms: int = 0):
        rank = rank_of_environment()
        self.rank, self.world = rank.rank, max(1, rank.world)
        self.local_rank, self.devices, self.handle = rank.local_rank, ctypes.c_void_p(), ctypes.c_void_p()
        listed = make("yoke_devices_options", "YOKE_DEVICES_OPTIONS_INIT", threads=threads, local_rank=rank.local_rank,
                      local_world=max(1, rank.local_world))
        listed.list = devices.encode() if devices else None
        LIBRARY.yoke_devices_open(ctypes.byref(self.devices), ctypes.byref(listed))
        weakref.finalize(self, LIBRARY.yoke_devices_close, self.devices)
        words = LAYOUT["enums"]["yoke_transport"]
        if transport not in words:
            raise ValueError(f"transport is {transport!r}: expected {', '.join(words)}")
        options = make("yoke_process_group_options", "YOKE_PROCESS_GROUP_OPTIONS_INIT", rank=ctypes.addressof(rank),
                       transport=words[transport], timeout_ms=timeout_ms, devices=self.devices.value)
        options.store, options.token = (one.encode() if one else None for one in (store, token))
        LIBRARY.yoke_process_group_create(ctypes.byref(self.handle), ctypes.byref(options))
        weakref.finalize(self, LIBRARY.yoke_process_group_destroy, self.handle)  # the last finalizer comes first

    def __repr__(self) -> str:
        transport = LIBRARY.yoke_process_group_transport(self.handle).decode()
        return f"<yoke.ProcessGroup rank {self.rank} of {self.world}, {transport}>"

    def barrier(self) -> None:
        """Waits until every rank has come here."""
        LIBRARY.yoke_process_group_barrier(self.handle)

    def all_reduce(self, array: numpy.ndarray, reduction: str = "sum") -> numpy.ndarray:
        """Every rank's array becomes the "sum", "mean", "min" or "max" over all."""
        words = LAYOUT["enums"]["yoke_reduction"]
        if reduction not in words:
            raise ValueError(f"reduction is {reduction!r}: expected {', '.join(words)}")
        LIBRARY.yoke_process_group_all_reduce(self.handle, *_buffer(array), words[reduction])
        return array

    def broadcast(self, array: numpy.ndarray, root: int = 0) -> numpy.ndarray:
        """Every rank's array becomes the root's."""
        LIBRARY.yoke_process_group_broadcast(self.handle, *_buffer(array), root)
        return array

    def all_gather(self, array: numpy.ndarray) -> numpy.ndarray:
        """[ranks, *shape of the array]: every rank's, in the order of ranks."""
        pointer, count, element = _buffer(array)
        found = numpy.empty((self.world, *array.shape), array.dtype)
        LIBRARY.yoke_process_group_all_gather(self.handle, found.ctypes.data, pointer, count, element)
        return found


def rank_of_environment() -> ctypes.Structure:
    """yoke_rank_info of the launcher's variables."""
    texts: list = []

    def look_up(name, _payload):
        value = os.environ.get(name.decode())
        if value is None:
            return None
        texts.append(ctypes.create_string_buffer(os.fsencode(value)))
        return ctypes.addressof(texts[-1])

    found = make("yoke_rank_info")
    lookup = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(look_up)
    LIBRARY.yoke_rank_detect(ctypes.byref(found), ctypes.cast(lookup, ctypes.c_void_p), None)
    return found


def _buffer(array: numpy.ndarray):
    """Pointer, count and element of an array that a collective reads and writes."""
    if not isinstance(array, numpy.ndarray) or str(array.dtype) not in ELEMENTS or not array.flags.c_contiguous:
        raise TypeError("a collective takes a contiguous array of numpy, of float32, float64 or int64")
    if not array.flags.writeable:
        raise ValueError("the array is read-only: a collective writes to it")
    return array.ctypes.data, array.size, LAYOUT["enums"]["yoke_element"][ELEMENTS[str(array.dtype)]]


class DistributedDataParallel(DataParallel):
    """yoke.DataParallel in one of several processes: each has one device and its rows of every batch, and all end every
    step with the same weights, bit for bit those of as many devices in one process.

    process_group: of yoke.ProcessGroup; None: one made of the launcher's variables. Arguments are those of
    yoke.DataParallel; batch is that of all ranks. Step, evaluate, save and load are calls of all ranks together; a call
    of the model is a rank's own. In every process the model begins with rank 0's weights.
    """

    def __init__(self, module: Any, devices: str | None = None, *, process_group: ProcessGroup | None = None,
                 threads: int = 0, **options: Unpack[DataParallelOptions]):
        group = process_group or ProcessGroup(devices, threads=threads)
        if process_group is not None and devices is not None:
            raise ValueError("devices and process_group: the group has opened the rank's device already")
        super().__init__(module, process_group=group, **options)

    @property
    def process_group(self) -> ProcessGroup:
        assert self._process_group is not None
        return self._process_group
