"""Gives the package what no exporter should export, thousands of times: `fuzz_entrances.py ENTRANCE EXAMPLES`.

Each call gives what hashlib gives, or an exception with the argument's name and the way out. test_entrances.py runs this in a
process of its own, so that a crash is seen; the last line of its output then is what was exported.

An exporter that claims memory which does not exist crashes every consumer. So an example that claims more than the arena has, and
nothing else that is wrong, is left out.
"""

import hashlib
import itertools
import math
import struct
import sys
from collections.abc import Callable
from typing import Any

from arrow_exporter import Exporter, StreamExporter
from buffer_exporter import BufferExporter
from dlpack_exporter import IS_COPIED, READ_ONLY, UNVERSIONED, VERSIONED, DlpackExporter
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hypergrove import sha256_batch

ARENA = 4096
HUGE = [2**59, 2**62, 2**63 - 1]
NEGATIVE = [-1, -(2**63)]
EXPECTED = (TypeError, ValueError, BufferError, MemoryError)

Rows = list[bytes]
# None is a row that is null or malformed.
Entries = list[bytes | None]


def pattern() -> bytearray:
    return bytearray(i * 7 % 251 for i in range(ARENA))


def mostly(right: Any, *wrong: Any) -> st.SearchStrategy[Any]:
    """What is right most of the time, so that several faults seldom meet and examples get far."""
    return st.sampled_from([right] * 40 + list(wrong))


def check(call: Callable[[], Any], expected: Rows | Entries | None, names: tuple[str, ...] = ("messages",)) -> str:
    """Calls, and compares; `expected` is None where an exception is wanted."""
    try:
        given_ = [None if row is None else bytes(row) for row in call()]
    except EXPECTED as why:
        text = str(why)
        assert expected is None, f"{expected!r} expected, not {why!r}"
        # Of memory that there is not, the number of bytes is all there is to say.
        is_clear = text.startswith(names) and any(way in text for way in ("; ", ", where ", " failed: "))
        assert is_clear or isinstance(why, MemoryError) and "memory" in text, repr(why)
        assert "\n" not in text and len(text) < 400, repr(why)
        return type(why).__name__
    assert given_ == expected, f"{given_!r}, not {expected!r}"
    return "a result"


def sums(rows: Rows | None) -> Rows | None:
    return None if rows is None else [hashlib.sha256(row).digest() for row in rows]


def packed(data: bytes, rows: int, width: int) -> Rows:
    return [data[at * width : (at + 1) * width] for at in range(rows)]


def as_column(column: Any, data: bytes, shape: list[int] | None) -> str:
    """As the column of messages. Its shape is None where it is not good."""
    rows = packed(data, *shape) if shape is not None and len(shape) == 2 else None
    return check(lambda: sha256_batch(column), sums(rows))


def as_row(row: Any, data: bytes, shape: list[int] | None) -> str:
    """As a row in a list."""
    good = None if shape is None or len(shape) > 1 else data[: math.prod(shape)]
    return check(lambda: sha256_batch([b"", row]), None if good is None else sums([b"", good]), ("messages: row 1",))


def as_out(out: Any, data: bytearray, begin: int, shape: list[int] | None) -> str:
    """As `out`, which is written only where it is good."""
    before = bytes(data)
    messages = [b"a", b"b"]
    result = check(lambda: [b""] if sha256_batch(messages, out=out) is out else [], [b""] if shape == [2, 32] else None, ("out",))
    expected = bytearray(before)
    if shape == [2, 32]:
        expected[begin : begin + 64] = b"".join(sums(messages) or [])
    assert data == expected, "other memory than that of out was written"
    return result


def is_dense(shape: list[int], strides: list[int] | None) -> bool:
    """Whether there are no gaps, as C lays arrays out."""
    if strides is None or 0 in shape:
        return True
    step, found = 1, True
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        found = found and (size <= 1 or stride == step)
        step *= size
    return found


def length(shape: list[int]) -> int | None:
    """Bytes of an array, as far as memory can have them."""
    if any(size < 0 for size in shape):
        return None
    steps = itertools.accumulate(shape, lambda a, b: a * b, initial=1)
    return None if any(step >= 2**64 for step in steps) or math.prod(shape) >= 2**63 else math.prod(shape)


def is_there(shape: list[int] | None) -> bool:
    """Whether there is memory for so many bytes and rows."""
    return shape is not None and math.prod(shape) <= ARENA and max(shape[:1], default=0) < 2**59


SIZES = st.sampled_from([0, 1, 2, 3, 5, 32, *HUGE, *NEGATIVE])
SHAPES = st.one_of(
    st.just([2, 32]),
    st.lists(st.sampled_from([0, 1, 2, 3, 5, 32]), min_size=2, max_size=2),
    st.lists(SIZES, max_size=4),
)


def right_strides(shape: list[int]) -> list[int]:
    """Strides of an array without gaps, as far as 64 bits can hold them."""
    steps = [math.prod(shape[at + 1 :]) for at in range(len(shape))]
    return [step if -(2**63) <= step < 2**63 else 0 for step in steps]


@st.composite
def buffers(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(SHAPES)
    total = math.prod(shape)
    return {
        "buf": draw(mostly(True, False)),
        "len": draw(mostly(total if abs(total) < 2**63 else 0, 0, 1, 64, *HUGE, *NEGATIVE)),
        "itemsize": draw(mostly(1, 0, -1, 2, 8)),
        "readonly": draw(st.integers(0, 1)),
        "ndim": draw(mostly(len(shape), -1, 0, 1, 2, 3, 64, 65, 2**31 - 1)),
        "format": draw(mostly(b"B", None, b"<B", b"@B", b"c", b"b", b"?", b"", b"BB", b"\xff\xfe", b"O", b"B" * 300)),
        "shape": draw(mostly(shape, None)),
        "strides": draw(mostly(right_strides(shape), None, [0] * 4, [-1, 1], [64, 1], [1, 2], [2**62, 1])),
        "suboffsets": draw(mostly(None, None, [-1, -1], [0, 0])),
    }


def good_buffer(fields: dict[str, Any] | None) -> list[int] | None:
    """The shape of a buffer that may be read."""
    if fields is None or fields["shape"] is None or fields["strides"] is None or not 0 <= fields["ndim"] <= 64:
        return None
    # The lists go on with zeros.
    sizes, steps = ((fields[name] + [0] * 64)[: fields["ndim"]] for name in ("shape", "strides"))
    total = length(sizes)
    is_bytes = fields["itemsize"] == 1 and fields["format"] in (b"B", None, b"<B", b"@B", b"c", b"=B", b">B")
    if total is None or total != fields["len"] or not is_bytes or not is_dense(sizes, steps):
        return None
    if fields["suboffsets"] is not None or total > 0 and not fields["buf"]:
        return None
    return sizes


USES = st.sampled_from(["column", "row", "out"])


@given(st.one_of(st.none(), buffers()), st.booleans(), USES)
def buffer(fields: dict[str, Any] | None, has_owner: bool, use: str) -> None:
    data, shape = pattern(), good_buffer(fields)
    assume(shape is None or math.prod(shape) <= ARENA or math.prod(shape) >= 2**59)
    note(fields, use)
    exporter = BufferExporter(data, fields, has_owner)
    known = shape if is_there(shape) else None
    if use == "column":
        result = as_column(exporter, data, known)
    elif use == "row":
        result = as_row(exporter, data, known)
    else:
        result = as_out(exporter, data, 0, None if fields is None or fields["readonly"] else known)
    count(result)


@st.composite
def tensors(draw: st.DrawFn) -> dict[str, Any]:
    shape = draw(SHAPES)
    return {
        "name": draw(mostly(VERSIONED, UNVERSIONED, UNVERSIONED, b"used_dltensor", b"used_dltensor_versioned", b"arrow_array")),
        "data": draw(mostly(True, False)),
        "device": draw(mostly(1, 0, 2, 3, 7, 8, 10, 13, 14, -1, 2**31 - 1)),
        "reported": draw(mostly((1, 0), (2, 1), (1, 0, 0), None, "cpu", (2**40, 0))),
        "code": draw(mostly(1, 0, 2, 3, 4, 5, 6, 7, 255)),
        "bits": draw(mostly(8, 0, 1, 16, 64)),
        "lanes": draw(mostly(1, 0, 4)),
        "ndim": draw(mostly(len(shape), -1, -(2**31), 0, 1, 2, 3, 64, 65, 2**31 - 1)),
        "shape": draw(mostly(shape, None)),
        "strides": draw(mostly(None, right_strides(shape), right_strides(shape), [0] * 4, [-1, 1], [64, 1], [1, 2], [2**62, 1])),
        "byte_offset": draw(mostly(0, 1, 13, 2**63 - 1, 2**64 - 1)),
        "flags": draw(mostly(0, READ_ONLY, IS_COPIED, 4, 2**64 - 1)),
        "version": draw(mostly((1, 0), (1, 9), (0, 8), (2, 0), (2**32 - 1, 0))),
        "has_deleter": draw(mostly(True, False)),
    }


def good_tensor(fields: dict[str, Any]) -> list[int] | None:
    """The shape of a tensor that may be read."""
    is_versioned = fields["name"] == VERSIONED
    if fields["name"] != UNVERSIONED and not (is_versioned and fields["version"][0] == 1):
        return None
    is_there = fields["device"] == 1 and fields["reported"] == (1, 0) and 0 <= fields["ndim"] <= 64
    if not is_there or (fields["code"], fields["bits"], fields["lanes"]) != (1, 8, 1):
        return None
    if fields["shape"] is None:
        sizes = [] if fields["ndim"] == 0 else [-1]
    else:
        sizes = (fields["shape"] + [0] * 64)[: fields["ndim"]]
    steps = None if fields["strides"] is None else (fields["strides"] + [0] * 64)[: fields["ndim"]]
    total = length(sizes)
    if total is None or not is_dense(sizes, steps):
        return None
    if total > 0 and (not fields["data"] or fields["byte_offset"] >= 2**63 - 1):
        return None
    return sizes


@given(tensors(), USES)
def dlpack(fields: dict[str, Any], use: str) -> None:
    data, shape = pattern(), good_tensor(fields)
    begin = fields["byte_offset"]
    assume(shape is None or 0 in shape or math.prod(shape) + begin <= ARENA or math.prod(shape) >= 2**59)
    note(fields, use)
    exporter = DlpackExporter(data, **fields)
    known = shape if is_there(shape) else None
    begin = 0 if begin > ARENA else begin
    if use == "column":
        result = as_column(exporter, bytes(data[begin:]), known)
    elif use == "row":
        result = as_row(exporter, bytes(data[begin:]), known)
    else:
        may_be_written = fields["name"] == VERSIONED and not fields["flags"] & (READ_ONLY | IS_COPIED)
        result = as_out(exporter, data, begin, known if may_be_written else None)
    # What was taken is given back, once.
    is_taken = fields["name"] in (VERSIONED, UNVERSIONED) and fields["reported"] == (1, 0)
    assert exporter.deleted == (is_taken and fields["has_deleter"]), exporter.deleted
    count(result)


DATA = 40
WIDTHS = {b"w:0": 0, b"w:3": 3, b"w:9223372036854775807": 2**63 - 1}
OFFSETS = {b"z": "i", b"u": "i", b"Z": "q", b"U": "q"}
VIEWS = [b"vz", b"vu"]
# Those of dictionaries.
INDICES = {b"c": "b", b"C": "B", b"s": "h", b"S": "H", b"i": "i", b"I": "I", b"l": "q", b"L": "Q"}
GOOD = [*OFFSETS, *VIEWS, b"w:3"]
BAD = [b"w:0", b"w:9223372036854775807", b"w:-1", b"w:", b"+l", b"", b"\xff\xfe", b"w:99999999999999999999", None]
FORMATS = st.one_of(st.sampled_from(GOOD), st.sampled_from([*GOOD, *BAD]))


@st.composite
def views(draw: st.DrawFn) -> bytes:
    """A view of a buffer with DATA bytes, or with its value in itself."""
    length = draw(mostly(draw(st.integers(0, 30)), -1, -(2**31), 2**31 - 1))
    if 0 <= length <= 12:
        return struct.pack("i12s", length, draw(st.binary(min_size=12, max_size=12)))
    buffer = draw(mostly(0, 1, -1, 2**31 - 1))
    return struct.pack("i4sii", length, b"abcd", buffer, draw(mostly(draw(st.integers(0, 10)), DATA, -1, 2**31 - 1)))


@st.composite
def arrays(draw: st.DrawFn, format_: bytes | None, dictionary: bytes | None = b"none") -> dict[str, Any]:
    """An array whose buffers have as many entries as it may claim, or more. `dictionary`: the format of its dictionary."""
    hostile = [*HUGE, *NEGATIVE]
    validity = draw(mostly(None, b"\xff" * 16, b"\xff\xfd" * 8))
    values = draw(mostly(bytes(pattern()[:64]), None))
    offsets = draw(st.lists(st.integers(0, DATA), min_size=16, max_size=16).map(sorted))
    for _ in range(draw(st.integers(0, 2))):
        offsets[draw(st.integers(0, 15))] = draw(st.sampled_from([-1, 0, DATA, 2**31 - 1, -(2**31)]))
    shift, n_buffers = draw(mostly(0, 1)), [0, 1, 4, *hostile]
    if format_ in OFFSETS:
        entries = struct.pack(f"16{OFFSETS[format_]}", *offsets)
        parts, right = [validity, draw(mostly(entries, None)), values, None], 3
    elif format_ in VIEWS:
        entries = b"".join(draw(st.lists(views(), min_size=16, max_size=16)))
        lengths = draw(mostly(struct.pack("q", DATA), struct.pack("q", 7), struct.pack("q", -1), None))
        # Of more buffers than there are, addresses would be read where there are none.
        parts, right, shift, n_buffers = [validity, draw(mostly(entries, None)), values, lengths], 4, 0, [0, 1, 3, *NEGATIVE]
    elif format_ in INDICES:
        code = INDICES[format_]
        wrong = [127, 200 if code.isupper() else -1]
        parts = [validity, struct.pack(f"16{code}", *(draw(mostly(draw(st.integers(0, 3)), *wrong)) for _ in range(16))), None, None]
        right = 2
    else:
        parts, right = [validity, values, None, None], 2
    has_dictionary = dictionary != b"none"
    return {
        "parts": parts,
        "offsets": offsets,
        "length": draw(mostly(draw(st.integers(0, 5)), *hostile)),
        "offset": draw(mostly(draw(st.integers(0, 5)), *hostile)),
        "null_count": draw(mostly(0, 1, *hostile)),
        "n_buffers": draw(mostly(right, *n_buffers)),
        "n_children": draw(mostly(0, 1, -1)),
        "has_buffers": draw(mostly(True, False)),
        "dictionary": (dictionary, draw(arrays(dictionary))) if has_dictionary else None,
        "has_dictionary": draw(mostly(True, False)),
        "misaligned_by": shift,
    }


def entries_of(format_: bytes | None, fields: dict[str, Any]) -> Entries | None:
    """The rows of an array that may be read. Leaves out what claims more than it has."""
    of, entries = fields["dictionary"], None
    if of is not None:
        entries = entries_of(*of) if format_ in INDICES and fields["has_dictionary"] else None
        if entries is None:
            return None
    elif format_ in INDICES:
        return None
    rows, first, count_ = fields["length"], fields["offset"], fields["n_buffers"]
    if format_ not in OFFSETS and format_ not in VIEWS and format_ not in WIDTHS and entries is None:
        return None
    if not 0 <= rows or not 0 <= first or rows + first >= 2**59 - 1 or not fields["has_buffers"] or fields["n_children"] != 0:
        return None
    if count_ < 3 if format_ in VIEWS else count_ != (3 if format_ in OFFSETS else 2):
        return None
    if rows == 0:
        return []
    validity, nulls, shift = fields["parts"][0], fields["null_count"], fields["misaligned_by"]
    if nulls > 0 and validity is None:
        return None
    bits = b"\xff" * 16 if nulls == 0 or validity is None else validity[shift:] + b"\0"
    values = values_of(format_, fields, first, rows, entries)
    return None if values is None else [value if bits[at // 8] >> at % 8 & 1 else None for at, value in enumerate(values, first)]


def values_of(format_: bytes | None, fields: dict[str, Any], first: int, rows: int, entries: Entries | None) -> Entries | None:
    part, shift = fields["parts"][1], fields["misaligned_by"]
    if entries is not None:
        code = INDICES[format_ or b""]
        width = struct.calcsize(code)
        at = (part + b"\0")[shift + first * width :]
        indices = struct.unpack_from(f"{rows}{code}", at)
        return [entries[index] if 0 <= index < len(entries) else None for index in indices]
    if format_ in WIDTHS:
        width = WIDTHS[format_]
        if (first + rows) * width >= 2**62 or width > 0 and part is None:
            return None
        return [*packed(part[shift + first * width :], rows, width)] if width else [b""] * rows
    if part is None or shift != 0:
        return None
    values = fields["parts"][2]
    if format_ in VIEWS:
        size = -1
        if fields["n_buffers"] > 3:
            lengths = fields["parts"][3]
            size = -1 if lengths is None else struct.unpack("q", lengths)[0]
            if size < 0 or values is None:
                return None
        return [view_of(part[16 * at :][:16], values, size) for at in range(first, first + rows)]
    used = fields["offsets"][first : first + rows + 1]
    # Whoever ends beyond the data claims memory that is not there.
    assume(used[-1] <= DATA)
    if used[-1] < 0 or used[-1] > 0 and values is None:
        return None
    return [(values or b"")[a:b] if 0 <= a <= b <= used[-1] else None for a, b in itertools.pairwise(used)]


def view_of(view: bytes, values: bytes, size: int) -> bytes | None:
    length, _, buffer, offset = struct.unpack("iiii", view)
    if length <= 12:
        return None if length < 0 else view[4 : 4 + length]
    return values[offset : offset + length] if buffer == 0 and 0 <= offset and offset + length <= size else None


def exporter_of(format_: bytes | None, fields: dict[str, Any]) -> Exporter:
    fields = dict(fields)
    del fields["offsets"]
    if not fields.pop("has_buffers"):
        fields["buffers"] = None
    if fields["dictionary"] is not None:
        fields["dictionary"] = exporter_of(*fields["dictionary"])
    return Exporter(format_, fields.pop("parts"), **fields)


def hashed(column: Any, entries: Entries | None, is_lenient: bool) -> str:
    """Rows that are null or malformed are nulls, or an error."""
    if is_lenient:
        expected = None if entries is None else [None if row is None else hashlib.sha256(row).digest() for row in entries]
        return check(lambda: sha256_batch(column, nulls="propagate", malformed="null"), expected)
    good = None if entries is None or None in entries else [row for row in entries if row is not None]
    return check(lambda: sha256_batch(column), sums(good), ("messages", "row "))


@st.composite
def types(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    """The formats of an array and of its dictionary."""
    if draw(st.booleans()):
        return draw(mostly(draw(st.sampled_from(list(INDICES))), b"z", b"f", None)), draw(FORMATS)
    return draw(st.one_of(FORMATS, FORMATS, st.sampled_from(list(INDICES)))), b"none"


@given(st.data(), st.booleans())
def arrow(data: st.DataObject, is_lenient: bool) -> None:
    format_, dictionary = data.draw(types())
    fields = data.draw(arrays(format_, dictionary))
    rows = entries_of(format_, fields)
    note(format_, fields)
    exporter = exporter_of(format_, fields)
    count(hashed(exporter, rows, is_lenient))
    assert exporter.released == 2, exporter.released


@given(st.data(), st.booleans())
def arrow_stream(data: st.DataObject, is_lenient: bool) -> None:
    # The schema is the first one's.
    format_, dictionary = data.draw(types())
    parts = [data.draw(arrays(format_, dictionary)) for _ in range(data.draw(st.integers(1, 3)))]
    chunks = [entries_of(format_, part) for part in parts]
    error = data.draw(mostly(None, b"", b"disk on fire", b"\xff\xfe"))
    missing = data.draw(mostly(None, "get_schema", "get_next", "get_last_error"))
    note(format_, parts, error, missing)
    stream = StreamExporter([exporter_of(format_, part) for part in parts], error)
    if missing is not None:
        setattr(stream.stream, missing, type(getattr(stream.stream, missing))())
    is_good = error is None and missing in (None, "get_last_error") and None not in chunks
    rows = [row for chunk in chunks for row in chunk or []] if is_good else None
    count(hashed(stream, rows, is_lenient))
    # Of what was never taken, the consumer has nothing to release.
    assert stream.released == 1
    for number, exporter in enumerate(stream.exporters):
        assert exporter.released <= (2 if number == 0 else 1), exporter.released


RESULTS: dict[str, int] = {}


def count(result: str) -> None:
    RESULTS[result] = RESULTS.get(result, 0) + 1


def note(*case: Any) -> None:
    """Says what is exported next, for whoever looks at a crash."""
    LAST.seek(0)
    LAST.write(repr(case).encode())
    LAST.truncate()


if __name__ == "__main__":
    entrance, examples, last = sys.argv[1:]
    LAST = open(last, "wb", buffering=0)
    quick = settings(
        database=None,
        derandomize=True,
        deadline=None,
        max_examples=int(examples),
        suppress_health_check=list(HealthCheck),
    )
    quick({"buffer": buffer, "dlpack": dlpack, "arrow": arrow, "arrow_stream": arrow_stream}[entrance])()
    print(RESULTS)
