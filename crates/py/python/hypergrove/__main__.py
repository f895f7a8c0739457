"""`python -m hypergrove quickstart`: a key, signatures and verdicts, and how fast they came."""

import argparse
import sys
import time
from typing import NoReturn

from . import SETS, PrivateKey, __version__, verify_batch
from ._hypergrove import _quote


class Parser(argparse.ArgumentParser):
    """A parser whose errors do not show the words that were typed: one of them may be a private key."""

    def error(self, message: str) -> NoReturn:
        for word in (part for argument in sys.argv[1:] for part in (argument, *argument.partition("=")[2:])):
            if word and _quote(word, [*SETS, "quickstart", "--set", "--rows"]) != f"'{word}'":
                shown = _quote(word, []).replace("'", "")
                message = message.replace(repr(word), shown).replace(word, shown)
        super().error(message)


def quickstart(set: str, rows: int) -> None:
    key = PrivateKey.generate(set)
    messages = [f"message {i}".encode() for i in range(rows)]
    began = time.perf_counter()
    signatures = key.sign_batch(messages)
    signed = time.perf_counter()
    good = verify_batch(key.public_key(), signatures, messages)
    verified = time.perf_counter()
    bad = verify_batch(key.public_key(), signatures, messages[::-1])
    # A message in the middle of an odd number stays where it is.
    if sum(good) != rows or sum(bad) != rows % 2:
        raise SystemExit("a verdict is wrong: do not use this machine, and report it")
    print(f"{set}: a key, {rows} signatures, all valid; none is valid for another message")
    print(f"signed {rows / (signed - began):,.0f} a second, verified {rows / (verified - signed):,.0f} a second")


def main() -> None:
    parser = Parser(prog="python -m hypergrove", description=f"hypergrove {__version__} for Python")
    command = parser.add_subparsers(required=True).add_parser("quickstart", help="sign and verify, and say how fast")
    command.add_argument("--set", default="SLH-DSA-SHA2-128f", choices=SETS, metavar="SET", help="the parameter set")
    command.add_argument("--rows", type=int, default=1000, help="messages")
    arguments = parser.parse_args()
    quickstart(arguments.set, arguments.rows)


if __name__ == "__main__":
    main()
