"""Tensors that are what a test says, true or not, by DLPack."""

import ctypes
from typing import Any

P = ctypes.POINTER
NEW = ctypes.pythonapi.PyCapsule_New
NEW.restype = ctypes.py_object
NEW.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
VERSIONED, UNVERSIONED = b"dltensor_versioned", b"dltensor"
READ_ONLY, IS_COPIED = 1, 2


class Tensor(ctypes.Structure):
    """`DLTensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", P(ctypes.c_int64)),
        ("strides", P(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Unversioned(ctypes.Structure):
    """`DLManagedTensor`."""

    _fields_ = [("tensor", Tensor), ("manager", ctypes.c_void_p), ("deleter", DELETER)]


class Versioned(ctypes.Structure):
    """`DLManagedTensorVersioned`."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", DELETER),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


class DlpackExporter:
    """A tensor of these bytes. `deleted` counts the calls of its deleter."""

    def __init__(self, data: bytearray, /, name: bytes = VERSIONED, **fields: Any) -> None:
        self.name, self.deleted = name, 0
        self.memory = (ctypes.c_char * len(data)).from_buffer(data)
        # What a test says nothing about is right.
        fields = {"data": True, "device": 1, "code": 1, "bits": 8, "lanes": 1, "strides": None, "version": (1, 0)} | fields
        version, flags = fields.pop("version"), fields.pop("flags", 0)
        self.reported = fields.pop("reported", (fields["device"], 0))
        fields["ndim"] = fields.get("ndim", len(fields["shape"] or []))
        fields["data"] = ctypes.addressof(self.memory) if fields["data"] else None
        self.lists = {}
        for name_ in ("shape", "strides"):
            numbers = fields[name_]
            if numbers is not None:
                self.lists[name_] = (ctypes.c_int64 * 64)(*numbers)
                fields[name_] = ctypes.cast(self.lists[name_], P(ctypes.c_int64))
        deleter = DELETER(self._delete) if fields.pop("has_deleter", True) else DELETER()
        self.managed: Unversioned | Versioned
        if name.endswith(UNVERSIONED):
            self.managed = Unversioned(Tensor(**fields), None, deleter)
        else:
            self.managed = Versioned(*version, None, deleter, flags, Tensor(**fields))

    def _delete(self, managed: int) -> None:
        assert managed == ctypes.addressof(self.managed)
        self.deleted += 1

    def __dlpack_device__(self) -> Any:
        return self.reported

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None) -> object:
        return NEW(ctypes.addressof(self.managed), self.name, None)
