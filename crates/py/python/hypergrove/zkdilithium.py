"""zkDilithium: lattice signatures whose verification is cheap to prove in a STARK.

A message has one signature, and there is no context.

>>> key = PrivateKey.generate()
>>> key.public_key().verify(key.sign(b"Dear reader"), b"Dear reader")
"""

from ._hypergrove import zkdilithium as _zkdilithium

PUBLIC_KEY_SIZE = _zkdilithium.PUBLIC_KEY_SIZE
SIGNATURE_SIZE = _zkdilithium.SIGNATURE_SIZE
PrivateKey = _zkdilithium.PrivateKey
PrivateKeys = _zkdilithium.PrivateKeys
PublicKey = _zkdilithium.PublicKey
keygen_batch = _zkdilithium.keygen_batch
verify_batch = _zkdilithium.verify_batch

__all__ = [
    "PUBLIC_KEY_SIZE",
    "SIGNATURE_SIZE",
    "PrivateKey",
    "PrivateKeys",
    "PublicKey",
    "keygen_batch",
    "verify_batch",
]
