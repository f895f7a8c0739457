from asyncio import Future
from collections.abc import Callable, Iterator, Sequence
from io import BufferedRandom, BufferedReader, FileIO
from os import PathLike
from types import ModuleType
from typing import Any, BinaryIO, Final, Literal, NoReturn, Protocol, TypeAlias, TypeVar, final, overload

from typing_extensions import Buffer, CapsuleType

__all__ = [
    "SETS",
    "Array",
    "Engine",
    "InvalidSignature",
    "PrivateKey",
    "PrivateKeys",
    "PublicKey",
    "__version__",
    "_array",
    "_quote",
    "_quote_path",
    "devices",
    "files",
    "keygen_batch",
    "sha256_batch",
    "verify_batch",
    "zkdilithium",
]

class _ArrowArray(Protocol):
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...

class _ArrowStream(Protocol):
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

# NumPy's arrays, whose type has the buffer protocol from Python 3.12 on alone.
class _NumpyArray(Protocol):
    @property
    def __array_interface__(self) -> dict[str, Any]: ...

# A tensor of DLPack. Producers from before DLPack 1.0 take fewer arguments.
class _Tensor(Protocol):
    @property
    def __dlpack__(self) -> Callable[..., object]: ...

# A value for each row: a sequence of bytes, with None for nulls, an array of uint8 of shape (rows, bytes of a row), an array of bytes objects, or a
# column of Arrow.
_Rows: TypeAlias = (
    Sequence[Buffer | None]
    | Sequence[_NumpyArray | None]
    | Sequence[_Tensor | None]
    | Buffer
    | _NumpyArray
    | _Tensor
    | _ArrowArray
    | _ArrowStream
)
_Path: TypeAlias = str | PathLike[str] | PathLike[bytes]
# What `open` returns for bytes.
_File: TypeAlias = _Path | BinaryIO | FileIO | BufferedReader | BufferedRandom
_Nulls: TypeAlias = Literal["error", "propagate"]
_Malformed: TypeAlias = Literal["error", "null"]
_Out = TypeVar("_Out", bound=Buffer | _NumpyArray | _Tensor)

SETS: Final[tuple[str, ...]]
files: Final[ModuleType]
zkdilithium: Final[ModuleType]
__version__: Final[str]

class InvalidSignature(Exception): ...

@final
class Array:
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def format(self) -> Literal["B", "?"]: ...
    @property
    def null_count(self) -> int: ...
    def reasons(self) -> list[tuple[int, str]]: ...
    def __len__(self) -> int: ...
    # A ValueError, unless there is one element.
    def __bool__(self) -> bool: ...
    # By the row: an Array of bool, or what NumPy makes of its arrays and of series.
    def __eq__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    __hash__: None  # type: ignore[assignment]
    @overload
    def __getitem__(self, row: int, /) -> Any: ...
    @overload
    def __getitem__(self, row: slice, /) -> Array: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __invert__(self) -> Array: ...
    # With NumPy's arguments of the functions of these names, what NumPy returns.
    @overload
    def all(self) -> bool: ...
    @overload
    def all(self, axis: Any = None, out: Any = None, **options: Any) -> Any: ...
    @overload
    def any(self) -> bool: ...
    @overload
    def any(self, axis: Any = None, out: Any = None, **options: Any) -> Any: ...
    def count(self, value: object) -> int: ...
    def index(self, value: object, start: int = 0, stop: int = ...) -> int: ...
    def tolist(self) -> list[Any]: ...
    def tobytes(self) -> bytes: ...
    _typ: Final = "npy_extension"
    @property
    def dtype(self) -> Any: ...
    @property
    def ndim(self) -> int: ...
    def to_numpy(self, dtype: Any | None = None, copy: bool = False) -> Any: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
    def __array__(self, dtype: Any | None = None, *, copy: bool | None = None) -> Any: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[CapsuleType, CapsuleType]: ...
    def __dlpack__(
        self,
        *,
        stream: object | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __release_buffer__(self, view: memoryview, /) -> None: ...

@final
class Engine:
    def __new__(
        cls,
        devices: str | Sequence[str] | None = None,
        threads: int | None = None,
        memory: int | None = None,
        cache: str | PathLike[str] | Literal[False] | None = None,
        tables: Sequence[str | PathLike[str]] | None = None,
        redundant: bool = False,
        device_timeout: float | None = None,
    ) -> Engine: ...
    @property
    def devices(self) -> list[str]: ...
    @property
    def threads(self) -> int: ...
    @property
    def device_timeout(self) -> float: ...
    def with_options(
        self, *, redundant: bool | None = None, verify_signatures: bool | None = None, timeout: float | None = None
    ) -> Engine: ...
    def cancel(self) -> None: ...
    def faults(self) -> list[str]: ...
    def notices(self) -> list[str]: ...
    def empty(self, shape: int | tuple[int] | tuple[int, int]) -> Array: ...

@final
class PrivateKey:
    @staticmethod
    def generate(set: str, *, engine: Engine | None = None) -> PrivateKey: ...
    @staticmethod
    def from_pem(data: str | Buffer, passphrase: str | Buffer | None = None) -> PrivateKey: ...
    @staticmethod
    def from_der(data: Buffer, passphrase: str | Buffer | None = None) -> PrivateKey: ...
    @staticmethod
    def load(path: _Path, passphrase: str | Buffer | None = None) -> PrivateKey: ...
    def save(self, path: _Path, passphrase: str | Buffer | None = None, *, overwrite: bool = False) -> None: ...
    @staticmethod
    def from_raw(set: str, data: Buffer) -> PrivateKey: ...
    def to_pem(self, passphrase: str | Buffer | None = None) -> bytes: ...
    def to_der(self, passphrase: str | Buffer | None = None) -> bytes: ...
    def to_raw(self) -> bytes: ...
    @property
    def set(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def signature_size(self) -> int: ...
    def cache(
        self, *, layers: int | None = None, memory: int | None = None, engine: Engine | None = None
    ) -> PrivateKey: ...
    def cache_size(self, layers: int) -> int: ...
    @property
    def cached_layers(self) -> int: ...
    def public_key(self) -> PublicKey: ...
    def sign(
        self,
        data: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        deterministic: bool = False,
        engine: Engine | None = None,
    ) -> bytes: ...
    def sign_file(
        self,
        file: _File,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        deterministic: bool = False,
        engine: Engine | None = None,
    ) -> bytes: ...
    def sign_async(
        self,
        data: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        deterministic: bool = False,
        engine: Engine | None = None,
    ) -> Future[bytes]: ...
    @overload
    def sign_batch(
        self,
        messages: _Rows,
        *,
        context: Buffer | None = None,
        prehash: str | None = None,
        deterministic: bool = False,
        out: None = None,
        engine: Engine | None = None,
        nulls: _Nulls = "error",
        malformed: _Malformed = "error",
    ) -> Array: ...
    @overload
    def sign_batch(
        self,
        messages: _Rows,
        *,
        context: Buffer | None = None,
        prehash: str | None = None,
        deterministic: bool = False,
        out: _Out,
        engine: Engine | None = None,
        nulls: Literal["error"] = "error",
        malformed: Literal["error"] = "error",
    ) -> _Out: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
    def __reduce__(self) -> NoReturn: ...

@final
class PublicKey:
    @staticmethod
    def from_pem(data: str | Buffer) -> PublicKey: ...
    @staticmethod
    def from_der(data: Buffer) -> PublicKey: ...
    @staticmethod
    def load(path: _Path) -> PublicKey: ...
    def save(self, path: _Path, *, overwrite: bool = False) -> None: ...
    @staticmethod
    def from_raw(set: str, data: Buffer) -> PublicKey: ...
    def to_pem(self) -> bytes: ...
    def to_der(self) -> bytes: ...
    def to_raw(self) -> bytes: ...
    @property
    def set(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def signature_size(self) -> int: ...
    def verify(
        self,
        signature: Buffer,
        data: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        engine: Engine | None = None,
    ) -> None: ...
    def verify_async(
        self,
        signature: Buffer,
        data: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        engine: Engine | None = None,
    ) -> Future[None]: ...
    def is_valid(
        self,
        signature: Buffer,
        data: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        engine: Engine | None = None,
    ) -> bool: ...
    def verify_file(
        self,
        file: _File,
        signature: Buffer,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        engine: Engine | None = None,
    ) -> bool: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[Any, ...]: ...

@final
class PrivateKeys:
    @property
    def set(self) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> PrivateKey: ...
    def __iter__(self) -> Iterator[PrivateKey]: ...
    def __reduce__(self) -> NoReturn: ...

def _array(data: bytes, format: str, shape: Sequence[int], reasons: Sequence[tuple[int, str]]) -> Array: ...
def _quote(text: str, names: list[str]) -> str: ...
def _quote_path(path: str | PathLike[str]) -> tuple[str, bool]: ...
def devices() -> list[tuple[str, str, str | None]]: ...
def verify_batch(
    public_keys: PublicKey | Sequence[PublicKey] | _Rows,
    signatures: _Rows,
    messages: _Rows,
    *,
    set: str | None = None,
    context: Buffer | None = None,
    prehash: str | None = None,
    engine: Engine | None = None,
    nulls: _Nulls = "error",
    malformed: _Malformed = "error",
) -> Array: ...
def keygen_batch(set: str, count: int, *, engine: Engine | None = None) -> tuple[PrivateKeys, Array]: ...
@overload
def sha256_batch(
    messages: _Rows,
    *,
    out: None = None,
    engine: Engine | None = None,
    nulls: _Nulls = "error",
    malformed: _Malformed = "error",
) -> Array: ...
@overload
def sha256_batch(
    messages: _Rows,
    *,
    out: _Out,
    engine: Engine | None = None,
    nulls: Literal["error"] = "error",
    malformed: Literal["error"] = "error",
) -> _Out: ...
