"""Bodies as pieces of bytes on their way, and what faults do to them. Pure but for the reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BufferedIOBase

PIECE_BYTES = 256 << 10
SLOW_PIECES_PER_SECOND = 10
LINE_BYTES = 4096  # a chunk's size with its extensions


class BodyEnded(ConnectionError):
    """The sender went away in the middle of a body."""


def of_length(source: BufferedIOBase, length: int) -> Iterator[bytes]:
    """Exactly `length` bytes. Raises BodyEnded."""
    while length > 0:
        piece = source.read1(min(length, PIECE_BYTES))
        if not piece:
            raise BodyEnded(f"{length} bytes of the body are missing")
        length -= len(piece)
        yield piece


def of_chunks(source: BufferedIOBase) -> Iterator[bytes]:
    """The data of HTTP's chunked transfer coding; trailer fields are dropped. Raises BodyEnded."""
    while True:
        size_text = source.readline(LINE_BYTES).partition(b";")[0].strip()
        try:
            size = int(size_text, 16)
        except ValueError:
            raise BodyEnded(f"chunk size {size_text!r}") from None
        if size == 0:
            while source.readline(LINE_BYTES).strip():
                pass
            return
        yield from of_length(source, size)
        source.readline(LINE_BYTES)


def chunked(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The chunked transfer coding of them."""
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def corrupted(pieces: Iterable[bytes], at: int) -> Iterator[bytes]:
    """Byte number `at` is another one."""
    for piece in pieces:
        if 0 <= at < len(piece):
            piece = piece[:at] + bytes([piece[at] ^ 0xFF]) + piece[at + 1 :]
        at -= len(piece)
        yield piece


def corrupted_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The same for a body in the SDK's aws-chunked coding: the first byte of data, after the first line."""
    line_seen = done = False
    for piece in pieces:
        if not done:
            at = 0 if line_seen else piece.find(b"\n") + 1
            line_seen = line_seen or at > 0
            if line_seen and at < len(piece):
                done = True
                piece = next(corrupted([piece], at))
        yield piece


def cut(pieces: Iterable[bytes], after: int) -> Iterator[bytes]:
    """The first `after` bytes, then BodyEnded."""
    for piece in pieces:
        if len(piece) >= after:
            yield piece[:after]
            break
        after -= len(piece)
        yield piece
    raise BodyEnded("cut")


def slowed(
    pieces: Iterable[bytes], bytes_per_second: int, sleep: Callable[[float], object]
) -> Iterator[bytes]:
    """The same at this rate, in small pieces."""
    step = max(1, min(PIECE_BYTES, bytes_per_second // SLOW_PIECES_PER_SECOND))
    for piece in pieces:
        for start in range(0, len(piece), step):
            part = piece[start : start + step]
            sleep(len(part) / bytes_per_second)
            yield part
