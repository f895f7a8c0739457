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


def pattern() -> bytearray:
    return bytearray(i * 7 % 251 for i in range(ARENA))


def mostly(right: Any, *wrong: Any) -> st.SearchStrategy[Any]:
    """What is right most of the time, so that several faults seldom meet and examples get far."""
    return st.sampled_from([right] * 40 + list(wrong))


def check(call: Callable[[], Any], expected: Rows | None, names: tuple[str, ...] = ("messages",)) -> str:
    """Calls, and compares; `expected` is None where an exception is wanted."""
    try:
        given_ = [bytes(row) for row in call()]
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


@st.composite
def arrays(draw: st.DrawFn, format_: bytes | None) -> dict[str, Any]:
    """An array whose buffers have as many entries as it may claim, or more."""
    hostile = [*HUGE, *NEGATIVE]
    is_fixed = format_ is not None and format_.startswith(b"w:")
    offsets = draw(st.lists(st.integers(0, DATA), min_size=16, max_size=16).map(sorted))
    for _ in range(draw(st.integers(0, 2))):
        offsets[draw(st.integers(0, 15))] = draw(st.sampled_from([-1, 0, DATA, 2**31 - 1, -(2**31)]))
    validity = draw(mostly(None, b"\xff" * 16, b"\xff\xfd" * 8))
    values = draw(mostly(bytes(pattern()[:64]), None))
    if is_fixed:
        parts = [validity, values, None, None]
    else:
        code = "i" if format_ == b"z" else "q"
        parts = [validity, draw(mostly(struct.pack(f"16{code}", *offsets), None)), values, None]
    return {
        "parts": parts,
        "offsets": offsets,
        "length": draw(mostly(draw(st.integers(0, 5)), *hostile)),
        "offset": draw(mostly(draw(st.integers(0, 5)), *hostile)),
        "null_count": draw(mostly(0, 1, *hostile)),
        "n_buffers": draw(mostly(2 if is_fixed else 3, 0, 1, 4, *hostile)),
        "n_children": draw(mostly(0, 1, -1)),
        "has_buffers": draw(mostly(True, False)),
        "dictionary": draw(mostly(None, 8)),
        "misaligned_by": draw(mostly(0, 1)),
    }


def good_array(format_: bytes | None, fields: dict[str, Any]) -> Rows | None:
    """The rows of an array that may be read. Leaves out what claims more than it has."""
    widths = {b"w:0": 0, b"w:3": 3, b"w:9223372036854775807": 2**63 - 1}
    is_known = format_ in (b"z", b"Z") or format_ in widths
    rows, first = fields["length"], fields["offset"]
    if not is_known or fields["dictionary"] is not None or not 0 <= rows or not 0 <= first or rows + first >= 2**59 - 1:
        return None
    if fields["n_buffers"] != (2 if format_ in widths else 3) or not fields["has_buffers"] or fields["n_children"] != 0:
        return None
    if rows == 0:
        return []
    validity, nulls = fields["parts"][0], fields["null_count"]
    if nulls > 0 and validity is None:
        return None
    shift = fields["misaligned_by"]
    if nulls != 0 and validity is not None:
        bits = validity[shift:] + b"\0"
        if not all(bits[at // 8] >> at % 8 & 1 for at in range(first, first + rows)):
            return None
    if format_ in widths:
        width = widths[format_]
        values = fields["parts"][1]
        if (first + rows) * width >= 2**62 or width > 0 and values is None:
            return None
        return packed(values[shift + first * width :], rows, width) if width else [b""] * rows
    if fields["parts"][1] is None or shift != 0:
        return None
    used, values = fields["offsets"][first : first + rows + 1], fields["parts"][2]
    # Whoever ends beyond the data claims memory that is not there.
    assume(used[-1] <= DATA)
    is_right = used == sorted(used) and used[0] >= 0
    if not is_right or used[-1] > 0 and values is None:
        return None
    return [values[a:b] for a, b in itertools.pairwise(used)] if used[-1] else [b""] * rows


FORMATS = st.one_of(
    st.sampled_from([b"z", b"Z", b"w:3"]),
    st.sampled_from([b"w:0", b"w:9223372036854775807", b"w:-1", b"w:", b"u", b"+l", b"", b"\xff\xfe", b"w:99999999999999999999", None]),
)


def exporter_of(format_: bytes | None, fields: dict[str, Any]) -> Exporter:
    fields = dict(fields)
    del fields["offsets"]
    if not fields.pop("has_buffers"):
        fields["buffers"] = None
    return Exporter(format_, fields.pop("parts"), **fields)


@given(st.data())
def arrow(data: st.DataObject) -> None:
    format_ = data.draw(FORMATS)
    fields = data.draw(arrays(format_))
    rows = good_array(format_, fields)
    note(format_, fields)
    exporter = exporter_of(format_, fields)
    count(check(lambda: sha256_batch(exporter), sums(rows), ("messages", "row ")))
    assert exporter.released == 2, exporter.released


@given(st.data())
def arrow_stream(data: st.DataObject) -> None:
    format_ = data.draw(FORMATS)
    # The schema is the first one's.
    parts = [data.draw(arrays(format_)) for _ in range(data.draw(st.integers(1, 3)))]
    for part in parts[1:]:
        part["dictionary"] = parts[0]["dictionary"]
    chunks = [good_array(format_, part) for part in parts]
    error = data.draw(mostly(None, b"", b"disk on fire", b"\xff\xfe"))
    missing = data.draw(mostly(None, "get_schema", "get_next", "get_last_error"))
    note(format_, parts, error, missing)
    stream = StreamExporter([exporter_of(format_, part) for part in parts], error)
    if missing is not None:
        setattr(stream.stream, missing, type(getattr(stream.stream, missing))())
    is_good = error is None and missing in (None, "get_last_error") and None not in chunks
    rows = [row for chunk in chunks for row in chunk or []] if is_good else None
    count(check(lambda: sha256_batch(stream), sums(rows), ("messages", "row ")))
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
