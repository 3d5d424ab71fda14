"""Records that hold ``tf.train.Example``: features by name, as TFRecord and ArrayRecord files mostly do.

Whether a shard holds Examples is decided by its first record: it is one if it parses with at least one feature and
nothing unknown. Then every record must be one. Else every row is ``{"data": bytes}``. The message type is described
here, in a pool of its own, so that neither TensorFlow nor generated code is needed.
"""

from functools import cache
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.formats.contract import FieldKind, Row

#: What a row has when records are just bytes.
DATA = "data"
_LISTS = {"bytes_list": 12, "float_list": 2, "int64_list": 3}
_DTYPES = {"float_list": np.float32, "int64_list": np.int64}


@cache
def _example() -> Any:
    """The message class; made when first needed."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as reason:
        raise UsageError(
            "reading tf.train.Example needs the package protobuf", hint="pip install protobuf"
        ) from reason
    file = descriptor_pb2.FileDescriptorProto(
        name="penstock/example.proto", package="penstock", syntax="proto3"
    )
    repeated, single, message_type = 3, 1, 11
    for name, number in _LISTS.items():
        values = file.message_type.add(name=f"{name}_message")
        values.field.add(name="value", number=1, label=repeated, type=number)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(_LISTS, start=1):
        feature.field.add(
            name=name,
            number=number,
            label=single,
            type=message_type,
            type_name=f".penstock.{name}_message",
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=single, type=9)
    entry.field.add(name="value", number=2, label=single, type=message_type, type_name=".penstock.Feature")
    features.field.add(
        name="feature",
        number=1,
        label=repeated,
        type=message_type,
        type_name=".penstock.Features.FeatureEntry",
    )
    example = file.message_type.add(name="Example")
    example.field.add(
        name="features", number=1, label=single, type=message_type, type_name=".penstock.Features"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("penstock.Example"))


def _parse(data: bytes) -> Any:
    """The features of a record, or nothing if it is no Example."""
    from google.protobuf.message import DecodeError

    try:
        return _example().FromString(data)
    except DecodeError:
        return None


def is_example(data: bytes) -> bool:
    """Whether a record is an Example beyond doubt."""
    message = _parse(data)
    if message is None or not message.features.feature:
        return False
    before: int = message.ByteSize()
    message.DiscardUnknownFields()
    return before == int(message.ByteSize())


class ExampleSurvey:
    """Looks at every Example of a shard and says what fields there are."""

    def __init__(self, *, mixed: bool) -> None:
        self._mixed = mixed
        self._lists: dict[str, set[str]] = {}
        self._present: dict[str, int] = {}
        #: Features that hold several byte strings in some record, and none in some.
        self._several: set[str] = set()
        self._empty: set[str] = set()
        self._records = 0

    def problem(self, data: bytes | memoryview) -> str | None:
        """What is wrong with a record, if anything is; a good one is counted."""
        message = _parse(bytes(data))
        if message is None:
            return "expected a tf.train.Example as the first record of the file is, got other bytes"
        features = message.features.feature
        kinds = {name: feature.WhichOneof("kind") for name, feature in features.items()}
        for name, kind in kinds.items():
            known = self._lists.get(name)
            if known and kind is not None and kind not in known and not self._mixed:
                return f"feature {name!r} is {kind}, but {next(iter(known))} in records before"
        self._records += 1
        for name, kind in kinds.items():
            self._count(name, kind, features[name])
        return None

    def _count(self, name: str, kind: str | None, feature: Any) -> None:
        self._present[name] = self._present.get(name, 0) + 1
        lists = self._lists.setdefault(name, set())
        if kind is None:
            self._empty.add(name)
            return
        lists.add(kind)
        if kind == "bytes_list":
            count = len(feature.bytes_list.value)
            if count > 1:
                self._several.add(name)
            elif count == 0:
                self._empty.add(name)

    def schema(self) -> list[FieldKind]:
        """The fields, by name."""
        return [
            FieldKind(name, self._kind(name), name in self._empty or self._present[name] < self._records)
            for name in sorted(self._lists)
        ]

    def _kind(self, name: str) -> str:
        lists = self._lists[name]
        if not lists:
            return "null"
        if "bytes_list" not in lists:
            return "array"
        if len(lists) > 1:
            return "mixed"
        return "list" if name in self._several else "bytes"


class ExampleRows:
    """Turns records into rows; ``schema`` is that of the whole version, so a field looks the same in every shard."""

    def __init__(self, schema: list[FieldKind]) -> None:
        self._lists = {field.name for field in schema if field.kind == "list"}

    def row(self, data: bytes | memoryview) -> Row:
        """One record. Numbers are arrays; a byte string stands alone unless the field holds several somewhere."""
        features = _example().FromString(bytes(data)).features.feature
        return {name: self._value(name, features[name]) for name in sorted(features)}

    def _value(self, name: str, feature: Any) -> Any:
        kind = feature.WhichOneof("kind")
        if kind is None:
            return None
        values = getattr(feature, kind).value
        if kind != "bytes_list":
            return np.fromiter(values, dtype=_DTYPES[kind], count=len(values))
        if name in self._lists or len(values) > 1:
            return list(values)
        return values[0] if values else None
