# SPDX-License-Identifier: Apache-2.0
"""PNG files of 8 bits without interlacing, grey or RGB, decoded from the standard alone."""
import struct
import zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunks_of(data):
    assert data[:8] == SIGNATURE
    place = 8
    while place < len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        content = data[place + 8:place + 8 + length]
        assert struct.unpack_from(">I", data, place + 8 + length)[0] == zlib.crc32(kind + content)
        yield kind, content
        place += 12 + length


def paeth(left, above, corner):
    return min((left, above, corner), key=lambda value: abs(left + above - corner - value))


def decode(data):
    """(width, height, colours, pixels), pixels as bytes of [height][width][colours]."""
    chunks = list(chunks_of(data))
    width, height, bits, colour, *rest = struct.unpack(">IIBBBBB", dict(chunks)[b"IHDR"])
    assert (bits, rest, chunks[-1]) == (8, [0, 0, 0], (b"IEND", b""))
    colours = {0: 1, 2: 3}[colour]
    filtered = zlib.decompress(b"".join(content for kind, content in chunks if kind == b"IDAT"))
    size = width * colours
    assert len(filtered) == height * (1 + size)
    before, pixels = bytes(size), b""
    for y in range(height):
        kind, *row = filtered[y * (1 + size):(y + 1) * (1 + size)]
        for i, above in enumerate(before):
            left, corner = (row[i - colours], before[i - colours]) if i >= colours else (0, 0)
            guess = (0, left, above, (left + above) // 2, paeth(left, above, corner))[kind]
            row[i] = (row[i] + guess) % 256
        before = bytes(row)
        pixels += before
    return width, height, colours, pixels


def encode(width, height, pixels):
    """The file of an RGB picture."""
    def chunk(kind, content):
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = b"".join(b"\0" + pixels[3 * width * y:3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return SIGNATURE + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
