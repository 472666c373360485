# SPDX-License-Identifier: Apache-2.0
"""Your own exchange in Python: exchange.c explains the ring. Grade it with

    yoke lesson exchange exchange.py

bucket has devices, count, gradients and inboxes (a list of arrays each: numpy's where there is numpy, otherwise
memoryviews), send(sender, to, first, count) and send_bfloat16.
"""


def cut(count, parts, part):
    """Part `part` of `parts` begins there; it ends where the next one begins."""
    return count * part // parts


def pass_on(bucket, sender, part, adds):
    to = (sender + 1) % bucket.devices
    first, end = cut(bucket.count, bucket.devices, part), cut(bucket.count, bucket.devices, part + 1)
    bucket.send(sender, to, first, end - first)
    for i in range(first, end):
        pass  # TODO: add the inbox of `to` to its gradients, or put it in their place.


def all_reduce(bucket):
    for step in range(bucket.devices - 1):
        for d in range(bucket.devices):
            pass_on(bucket, d, (d - step) % bucket.devices, adds=True)
    # TODO: the second half.
