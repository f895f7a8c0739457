"""Objects that export what a test says, true or not, by Arrow's C data interface."""

import ctypes
from collections.abc import Sequence
from typing import Any

P = ctypes.POINTER
NEW = ctypes.pythonapi.PyCapsule_New
NEW.restype = ctypes.py_object
NEW.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Schema(ctypes.Structure):
    """`struct ArrowSchema`."""


class Array(ctypes.Structure):
    """`struct ArrowArray`."""


class Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""


RELEASE_SCHEMA = ctypes.CFUNCTYPE(None, P(Schema))
RELEASE_ARRAY = ctypes.CFUNCTYPE(None, P(Array))
RELEASE_STREAM = ctypes.CFUNCTYPE(None, P(Stream))
GET_SCHEMA = ctypes.CFUNCTYPE(ctypes.c_int, P(Stream), P(Schema))
GET_NEXT = ctypes.CFUNCTYPE(ctypes.c_int, P(Stream), P(Array))
GET_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, P(Stream))

Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", RELEASE_SCHEMA),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", P(ctypes.c_void_p)),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", RELEASE_ARRAY),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", GET_SCHEMA),
    ("get_next", GET_NEXT),
    ("get_last_error", GET_ERROR),
    ("release", RELEASE_STREAM),
    ("private_data", ctypes.c_void_p),
]


class Exporter:
    """Has the memory of what it exports. `released` counts the structures that a consumer has released. `dictionary`: an exporter of the
    dictionary's schema, and of its array unless `has_dictionary` is False."""

    def __init__(
        self,
        format: bytes | None,
        data: Sequence[bytes | None],
        dictionary: "Exporter | None" = None,
        has_dictionary: bool = True,
        **fields: Any,
    ) -> None:
        self.released = 0
        # Memory of ctypes is aligned; a byte more, so that none is empty.
        self.memory = [None if part is None else ctypes.create_string_buffer(part, len(part) + 1) for part in data]
        addresses = [None if part is None else ctypes.addressof(part) for part in self.memory]
        shift = fields.pop("misaligned_by", 0)
        if shift:
            addresses = [None if at is None else at + shift for at in addresses]
        self.addresses = (ctypes.c_void_p * len(data))(*addresses)
        self.release_schema = RELEASE_SCHEMA(self._release)
        self.release_array = RELEASE_ARRAY(self._release)
        self.dictionary, of_schema, of_array = dictionary, None, None
        if dictionary is not None:
            of_schema = ctypes.addressof(dictionary.schema)
            of_array = ctypes.addressof(dictionary.array) if has_dictionary else None
        self.schema = Schema(format=format, dictionary=of_schema, release=self.release_schema)
        known = {"length": 0, "null_count": 0, "offset": 0, "n_buffers": len(data), "buffers": self.addresses, "dictionary": of_array}
        self.array = Array(**(known | fields), release=self.release_array)
        self.capsules = (b"arrow_schema", b"arrow_array")

    def _release(self, structure: Any) -> None:
        self.released += 1
        structure.contents.release = type(structure.contents.release)()

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return (
            NEW(ctypes.addressof(self.schema), self.capsules[0], None),
            NEW(ctypes.addressof(self.array), self.capsules[1], None),
        )


class StreamExporter:
    """A stream of exporters' arrays, which fails after the last if `error` is given."""

    def __init__(self, exporters: Sequence[Exporter], error: bytes | None = None) -> None:
        self.exporters, self.left, self.released = exporters, list(exporters), 0

        def get_schema(stream: Any, to: Any) -> int:
            ctypes.memmove(to, ctypes.byref(exporters[0].schema), ctypes.sizeof(Schema))
            return 0

        def get_next(stream: Any, to: Any) -> int:
            if self.left:
                ctypes.memmove(to, ctypes.byref(self.left.pop(0).array), ctypes.sizeof(Array))
                return 0
            ctypes.memset(to, 0, ctypes.sizeof(Array))
            return 0 if error is None else 5

        def release(stream: Any) -> None:
            self.released += 1
            stream.contents.release = RELEASE_STREAM()

        self.error = None if error is None else ctypes.create_string_buffer(error)
        text = None if self.error is None else ctypes.addressof(self.error)
        self.functions = (GET_SCHEMA(get_schema), GET_NEXT(get_next), GET_ERROR(lambda stream: text), RELEASE_STREAM(release))
        self.stream = Stream(*self.functions)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return NEW(ctypes.addressof(self.stream), b"arrow_array_stream", None)
