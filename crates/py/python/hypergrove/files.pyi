from collections.abc import Sequence
from datetime import datetime
from os import PathLike
from typing import final

from typing_extensions import Buffer

from ._hypergrove import Engine, PrivateKey, PublicKey, _File, _Path  # pyright: ignore[reportPrivateUsage]

__all__ = ["AllowedSigners", "Envelope", "Manifest", "sign_envelope"]

def sign_envelope(
    key: PrivateKey,
    data: Buffer | _File,
    context: Buffer | None = None,
    *,
    prehash: str | None = None,
    comment: str | None = None,
    deterministic: bool = False,
    engine: Engine | None = None,
) -> Envelope: ...
@final
class Envelope:
    @staticmethod
    def parse(data: str | Buffer) -> Envelope: ...
    @property
    def set(self) -> str: ...
    @property
    def prehash(self) -> str | None: ...
    @property
    def context(self) -> bytes: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def comment(self) -> str | None: ...
    def verify(
        self,
        public_key: PublicKey,
        data: Buffer | _File,
        context: Buffer | None = None,
        *,
        engine: Engine | None = None,
    ) -> None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class Manifest:
    @staticmethod
    def of_folder(
        folder: _Path, *, without: Sequence[str | PathLike[str]] = ..., engine: Engine | None = None
    ) -> Manifest: ...
    @staticmethod
    def parse(data: str | Buffer) -> Manifest: ...
    def to_bytes(self) -> bytes: ...
    def entries(self) -> list[tuple[str, bytes]]: ...
    def problems(
        self, folder: _Path, *, without: Sequence[str | PathLike[str]] = ..., engine: Engine | None = None
    ) -> list[tuple[str, str]]: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]

@final
class AllowedSigners:
    @staticmethod
    def parse(data: str | Buffer) -> AllowedSigners: ...
    @staticmethod
    def load(path: _Path) -> AllowedSigners: ...
    def check(
        self, context: Buffer | None = None, *, at: datetime | None = None
    ) -> list[tuple[str, PublicKey, str | None]]: ...
    def verify(
        self,
        signature: Buffer | Envelope,
        data: Buffer | _File,
        context: Buffer | None = None,
        *,
        prehash: str | None = None,
        at: datetime | None = None,
        engine: Engine | None = None,
    ) -> str: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    __hash__: None  # type: ignore[assignment]
