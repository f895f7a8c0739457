"""What the modules for data engines share: imports of the engines, and private keys that workers load by themselves."""

import functools
import importlib
import os
import threading
import traceback
from collections.abc import Callable
from os import PathLike
from typing import Any, ParamSpec, TypeAlias, TypeVar

from . import PrivateKey, verify_batch
from ._hypergrove import _quote, _quote_path

KeySource: TypeAlias = str | PathLike[str] | Callable[[], PrivateKey]
"""Where a worker gets its private key: the path of a PEM file, or a function without arguments that returns the key."""

verify_rows = functools.partial(verify_batch, nulls="propagate", malformed="null")
"""`verify_batch` as all engines call it: a row that lacks a value, or whose public key cannot be one, has a null verdict and ends no other row."""


def load(name: str) -> Any:
    """Imports an engine's package. The package hypergrove depends on none of them."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as why:
        package = name.partition(".")[0]
        if why.name != package:
            raise
        extra = {"pyarrow": "arrow", "pyspark": "spark"}.get(package, package)
        raise ModuleNotFoundError(f"{why}; install it, for example with hypergrove's extra {extra!r}", name=package) from None


Given = ParamSpec("Given")
Result = TypeVar("Result")


def unseen(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """The function with errors whose tracebacks hold no values. Some loggers show the variables of each frame, and an argument may be a
    private key that stands in a wrong place."""

    @functools.wraps(function)
    def call(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except Exception as why:
            del args, kwargs
            cause: BaseException | None = why
            while cause is not None:
                traceback.clear_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
            raise

    return call


class Key:
    """A private key by its source. The process that signs loads the key; what is pickled is the source alone."""

    def __init__(self, source: KeySource) -> None:
        self._source = source
        self._key: PrivateKey | None = None
        # Whoever calls may pass anything.
        given: Any = source
        if isinstance(given, PrivateKey):
            raise TypeError(
                "key: a PrivateKey must not travel to the workers of an engine, through its object store and its logs; "
                "give the path of a PEM file, or a function without arguments that each worker calls to load the key"
            )
        if not (isinstance(given, (str, PathLike)) or callable(given)):
            kind = type(given).__name__
            raise TypeError(f"key: {kind}; give the path of a PEM file, or a function without arguments that returns a PrivateKey")
        if not callable(source):
            _check_path(source)

    @staticmethod
    def of(source: "KeySource | Key") -> "Key":
        """The same, or the key of a source."""
        return source if isinstance(source, Key) else Key(source)

    def get(self) -> PrivateKey:
        """The private key. It is loaded once; a file is read again only after it has changed."""
        with _LOADING:
            if not callable(self._source):
                return _of_file(self._source)
            if self._key is None:
                found: Any = self._source()
                if not isinstance(found, PrivateKey):
                    raise TypeError(f"key: the function returned {type(found).__name__}, not a PrivateKey")
                self._key = found
            return self._key

    def __reduce__(self) -> tuple[Any, ...]:
        return Key, (self._source,)


def _check_path(path: str | PathLike[str]) -> None:
    """Refuses a private key in place of its path, before an engine sends it to its workers."""
    shown, may_be_key = _quote_path(path)
    if may_be_key:
        raise ValueError(
            f"key: this looks like a private key, not like the path of a file: {shown}; engines send this argument to their workers and log "
            'it. Give the path of a PEM file, or a function: lambda: PrivateKey.from_pem(os.environb[b"KEY"]) reads the variable KEY'
        )


def _of_file(source: str | PathLike[str]) -> PrivateKey:
    try:
        path = os.path.abspath(source)
        return _read(path, os.stat(path).st_mtime_ns)
    except OSError as why:
        failed = OSError(why.errno, why.strerror, _quote_path(source)[0])
    # Not within `except`: the exception would refer to the first one, which quotes the path.
    raise failed


def check_column(name: str, what: str) -> None:
    """Refuses a private key in place of a column's name: the engines quote names in their errors and plans."""
    if _quote_path(name)[1]:
        raise ValueError(f"{what}: {_quote(name, [])}: this looks like a private key, not like the name of a column")


def shown_column(name: str) -> str:
    """The name of a column that there is. A file of keys without a header gives columns such names as no message shows."""
    return _quote(name, [] if _quote_path(name)[1] else [name])


# Threads that sign at the same time load a key once.
_LOADING = threading.RLock()


@functools.lru_cache(maxsize=16)
def _read(path: str, modified: int) -> PrivateKey:
    """The key of a PEM file. `modified` is part of the cache's key, so that a new file is read."""
    try:
        return PrivateKey.load(path)
    except ValueError as why:
        raise ValueError(f"key: {why}") from None
