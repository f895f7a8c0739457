"""Hash-based post-quantum signatures, SLH-DSA (FIPS 205), one at a time or by the batch.

>>> key = PrivateKey.generate("SLH-DSA-SHA2-128f")
>>> signature = key.sign(b"Dear reader", b"letters")
>>> key.public_key().verify(signature, b"Dear reader", b"letters")
>>> bool(verify_batch(key.public_key(), [signature], [b"Dear writer"], context=b"letters")[0])
False

zkDilithium is in `hypergrove.zkdilithium`. docs/python.md of the repository has the rest.
"""

from collections.abc import Sequence as _Sequence

from . import files, zkdilithium
from ._hypergrove import (
    SETS,
    Array,
    Engine,
    InvalidSignature,
    PrivateKey,
    PrivateKeys,
    PublicKey,
    __version__,
    devices,
    keygen_batch,
    sha256_batch,
    verify_batch,
)

__all__ = [
    "SETS",
    "Array",
    "Engine",
    "InvalidSignature",
    "PrivateKey",
    "PrivateKeys",
    "PublicKey",
    "__version__",
    "devices",
    "files",
    "keygen_batch",
    "sha256_batch",
    "verify_batch",
    "zkdilithium",
]

# Polars takes sequences of booleans for masks.
_Sequence.register(Array)
