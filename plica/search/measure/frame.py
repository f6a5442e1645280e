"""Frames: what two processes say to each other, a few words and some bytes at a time.

    frame ::= size of the head (8 bytes), head (JSON), blobs;   head["blobs"] = their sizes

>>> import io
>>> read(io.BytesIO(to_bytes(MessageFrame({"do": "build"}, (b"object",)))))
MessageFrame(head={'do': 'build'}, blobs=(b'object',))
>>> read(io.BytesIO(b"")) is None
True
"""

from __future__ import annotations

import json
import struct
from typing import IO, Any, Final

from attrs import frozen

MAX_FRAME_BYTES: Final = 1 << 31  # bytes of a frame


@frozen
class MessageFrame:
    """Words, and bytes that belong to them."""

    head: dict[str, Any]  # Any: what JSON can hold
    blobs: tuple[bytes, ...] = ()


def to_bytes(of: MessageFrame) -> bytes:
    """The serialised frame."""
    sizes = [len(blob) for blob in of.blobs]
    head = json.dumps({**of.head, "blobs": sizes}).encode()
    return b"".join([struct.pack("<Q", len(head)), head, *of.blobs])


def read(stream: IO[bytes]) -> MessageFrame | None:
    """The next frame, or None at the end of the stream, even inside a frame."""
    if (size := _exactly(stream, 8)) is None:
        return None
    if (text := _exactly(stream, struct.unpack("<Q", size)[0])) is None:
        return None
    head = json.loads(text)
    blobs = [_exactly(stream, int(each)) for each in head.pop("blobs")]
    if any(blob is None for blob in blobs):
        return None
    return MessageFrame(head, tuple([blob for blob in blobs if blob is not None]))


def _exactly(stream: IO[bytes], size: int) -> bytes | None:
    if size > MAX_FRAME_BYTES:
        return None
    parts: list[bytes] = []
    while size:
        if not (part := stream.read(size)):
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
