"""TFRecord files of ``tf.train.Example`` messages, without TensorFlow (extra ``tfrecord``).

The framing is 16 bytes a record and done here; checksums are crc32c's work and messages protobuf's, both kept by
their makers. The package ``tfrecord`` does the same with the same two, comes without a wheel and had no release since
2025-05. Written: ``image`` (bytes, uint8 [c, h, w]), ``shape`` and ``label``; or ``tokens``. Read as well: TensorFlow's
usual ``image/encoded`` (PNG, JPEG) with ``image/class/label``.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigurationError, DatasetError
from .images import decode, need_pillow
from .record import Record

_MASK_DELTA = 0xA282EAD8  # TensorFlow's record format: a CRC of data that holds CRCs is masked


def _crc32c() -> Any:
    try:
        import crc32c
        import google.protobuf  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "TFRecord files need crc32c and protobuf; install them beside the trainer: "
            "pip install 'gpu-trainer[tfrecord]'"
        ) from error
    return crc32c.crc32c


@cache
def _example_class() -> Any:
    """``tf.train.Example`` as TensorFlow's example.proto and feature.proto define it."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="trainer/example.proto", package="tensorflow", syntax="proto3"
    )

    def message(parent: Any, name: str, *fields: tuple[str, int, int, int, str]) -> Any:
        made = parent.add(name=name)
        for field_name, number, label, kind, type_name in fields:
            made.field.add(
                name=field_name, number=number, label=label, type=kind, type_name=type_name or None
            )
        return made

    one, many = field.LABEL_OPTIONAL, field.LABEL_REPEATED
    message(file.message_type, "BytesList", ("value", 1, many, field.TYPE_BYTES, ""))
    message(file.message_type, "FloatList", ("value", 1, many, field.TYPE_FLOAT, ""))
    message(file.message_type, "Int64List", ("value", 1, many, field.TYPE_INT64, ""))
    feature = message(
        file.message_type,
        "Feature",
        ("bytes_list", 1, one, field.TYPE_MESSAGE, ".tensorflow.BytesList"),
        ("float_list", 2, one, field.TYPE_MESSAGE, ".tensorflow.FloatList"),
        ("int64_list", 3, one, field.TYPE_MESSAGE, ".tensorflow.Int64List"),
    )
    feature.oneof_decl.add(name="kind")
    for entry in feature.field:
        entry.oneof_index = 0
    features = message(
        file.message_type,
        "Features",
        ("feature", 1, many, field.TYPE_MESSAGE, ".tensorflow.Features.FeatureEntry"),
    )
    pair = message(
        features.nested_type,
        "FeatureEntry",
        ("key", 1, one, field.TYPE_STRING, ""),
        ("value", 2, one, field.TYPE_MESSAGE, ".tensorflow.Feature"),
    )
    pair.options.map_entry = True
    message(file.message_type, "Example", ("features", 1, one, field.TYPE_MESSAGE, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def _masked(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def write(path: Path, records: Iterable[Record]) -> None:
    crc32c = _crc32c()
    with open(path, "wb") as file:
        for record in records:
            example = _example_class()()
            feature = example.features.feature
            if record.label is None:
                feature["tokens"].int64_list.value.extend(record.array.tolist())
            else:
                feature["image"].bytes_list.value.append(record.array.tobytes())
                feature["shape"].int64_list.value.extend(record.array.shape)
                feature["label"].int64_list.value.append(record.label)
            body = example.SerializeToString(deterministic=True)
            length = struct.pack("<Q", len(body))
            file.write(length + struct.pack("<I", _masked(crc32c(length))))
            file.write(body + struct.pack("<I", _masked(crc32c(body))))


def read(path: Path) -> Iterator[Record]:
    """Raises DatasetError naming file and record where a checksum is wrong or the file is cut off."""
    for number, body in enumerate(_bodies(path)):
        where = f"{path}, record {number}"
        example = _example_class()()
        try:
            example.ParseFromString(body)
            record = _record(example.features.feature, where)
        except (ValueError, IndexError) as error:
            raise DatasetError(f"{where}: {error}") from error
        except Exception as error:  # protobuf's DecodeError, whose class depends on its back end
            if type(error).__name__ != "DecodeError":
                raise
            raise DatasetError(f"{where}: not a tf.train.Example: {error}") from error
        yield record


def _bodies(path: Path) -> Iterator[bytes]:
    crc32c, number = _crc32c(), 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while header := file.read(12):
            where = f"{path}, record {number}"
            if len(header) < 12 or struct.unpack("<I", header[8:])[0] != _masked(crc32c(header[:8])):
                raise DatasetError(
                    f"{where}: the length's checksum is wrong; this is no TFRecord file, or a broken one"
                )
            (length,) = struct.unpack("<Q", header[:8])
            if length + 4 > size - file.tell():  # before room is made for it
                raise DatasetError(f"{where}: the file is cut off")
            body, tail = file.read(length), file.read(4)
            if struct.unpack("<I", tail)[0] != _masked(crc32c(body)):
                raise DatasetError(f"{where}: its bytes are not what its checksum says")
            yield body
            number += 1


def _record(feature: Any, where: str) -> Record:
    if "tokens" in feature:
        return Record(np.array(feature["tokens"].int64_list.value, np.int64))
    if "image" in feature and "shape" in feature and "label" in feature:
        pixels = np.frombuffer(feature["image"].bytes_list.value[0], np.uint8)
        return Record(
            pixels.reshape(list(feature["shape"].int64_list.value)), int(feature["label"].int64_list.value[0])
        )
    if "image/encoded" in feature and "image/class/label" in feature:
        need_pillow()
        label = int(feature["image/class/label"].int64_list.value[0])
        return Record(decode(feature["image/encoded"].bytes_list.value[0], where), label)
    raise DatasetError(
        f"{where}: holds {', '.join(sorted(feature))}; needed are image, shape and label, or tokens"
    )
