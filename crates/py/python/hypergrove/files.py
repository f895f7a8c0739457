"""Envelopes, manifests of folders and lists of signers, as the command-line tool reads and writes them.

>>> from hypergrove import PrivateKey
>>> key = PrivateKey.generate("SLH-DSA-SHA2-128f")
>>> envelope = sign_envelope(key, b"Dear reader", b"letters", comment="to the reader")
>>> Envelope.parse(str(envelope)).verify(key.public_key(), b"Dear reader", b"letters")
"""

from ._hypergrove import files as _files

AllowedSigners = _files.AllowedSigners
Envelope = _files.Envelope
Manifest = _files.Manifest
sign_envelope = _files.sign_envelope

__all__ = ["AllowedSigners", "Envelope", "Manifest", "sign_envelope"]
