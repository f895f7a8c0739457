"""Runs the examples of a document's sections, in the working directory, in a process of their own.

    python run_section.py docs/tables.md Data Ray
"""

import doctest
import re
import sys
from pathlib import Path


class Checker(doctest.OutputChecker):
    """Leaves out the warnings that Ray's node prints into the output of a slow machine, also with log_to_driver=False."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        own = [line for line in got.splitlines(keepends=True) if "(raylet)" not in line]
        return super().check_output(want, "".join(own), optionflags)


def main(document: str, *titles: str) -> None:
    sections = dict(re.findall(r"^## (.*)\n((?:(?!^## ).*\n)*)", Path(document).read_text(), re.MULTILINE))
    text = "\n".join(sections[title] for title in titles)
    test = doctest.DocTestParser().get_doctest(text, {}, document, document, 0)
    result = doctest.DocTestRunner(Checker()).run(test)
    sys.exit(1 if result.failed or not result.attempted else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
