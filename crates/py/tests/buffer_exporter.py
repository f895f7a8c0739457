"""Objects whose buffers are what a test says, true or not."""

import ctypes
from typing import Any

P = ctypes.POINTER
SIZE = ctypes.c_ssize_t
DEFAULT_AND_BASE = 1 << 18 | 1 << 10
GET_BUFFER = 1


class View(ctypes.Structure):
    """`Py_buffer`."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", SIZE),
        ("itemsize", SIZE),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", P(SIZE)),
        ("strides", P(SIZE)),
        ("suboffsets", P(SIZE)),
        ("internal", ctypes.c_void_p),
    ]


class Slot(ctypes.Structure):
    """`PyType_Slot`."""

    _fields_ = [("slot", ctypes.c_int), ("function", ctypes.c_void_p)]


class Spec(ctypes.Structure):
    """`PyType_Spec`."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("basicsize", ctypes.c_int),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", P(Slot)),
    ]


@ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, P(View), ctypes.c_int)
def _get_buffer(exporter: Any, view: Any, flags: int) -> int:
    if exporter.fields is None:
        return -1
    ctypes.memmove(view, ctypes.byref(exporter.view), ctypes.sizeof(View))
    if exporter.has_owner:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(exporter))
        view.contents.obj = id(exporter)
    return 0


_SLOTS = (Slot * 2)(Slot(GET_BUFFER, ctypes.cast(_get_buffer, ctypes.c_void_p)), Slot(0, None))
_SPEC = Spec(b"buffer_exporter.Base", 0, 0, DEFAULT_AND_BASE, _SLOTS)
_FROM_SPEC = ctypes.pythonapi.PyType_FromSpec
_FROM_SPEC.restype = ctypes.py_object
_FROM_SPEC.argtypes = [P(Spec)]
_Base: Any = _FROM_SPEC(ctypes.byref(_SPEC))


class BufferExporter(_Base):
    """Exports a buffer with these fields of `Py_buffer`; without any, it fails and does not say why. The lists have as many numbers
    as the largest buffer has dimensions, so that only who believes in more reads beyond them.
    """

    def __init__(self, data: bytearray, fields: dict[str, Any] | None, has_owner: bool = True) -> None:
        self.data, self.fields, self.has_owner = data, fields, has_owner
        if fields is None:
            return
        self.memory = (ctypes.c_char * len(data)).from_buffer(data)
        lists = {name: fields[name] for name in ("shape", "strides", "suboffsets")}
        self.lists = {name: None if one is None else (SIZE * 64)(*one) for name, one in lists.items()}
        pointers = {name: None if one is None else ctypes.cast(one, P(SIZE)) for name, one in self.lists.items()}
        address = ctypes.addressof(self.memory) if fields["buf"] else None
        self.view = View(**(fields | pointers | {"buf": address}))
