"""What tests share: keys that take long to make, and where the repository's vectors are."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import hypergrove
from hypergrove import PrivateKey

SET = "SLH-DSA-SHA2-128f"

# Nothing is written into the repository; the examples of a quick run are always the same.
settings.register_profile("quick", database=None, derandomize=True, deadline=None, max_examples=40)
settings.register_profile("full", database=None, deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

# Clusters need what requirements-full.txt lists, and minutes.
IS_FULL = os.environ.get("HYPERGROVE_TESTS") == "all"
collect_ignore = [] if IS_FULL else ["test_clusters.py"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says in Rust's words what ran, for `cargo xtask`."""
    reports = terminalreporter.stats
    for report in reports.get("skipped", []):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        terminalreporter.write_line(f"skipped: Python's {report.nodeid.split('::')[-1]}: {reason}")
    failed = reports.get("failed", []) + reports.get("error", [])
    for report in failed:
        terminalreporter.write_line(f"test {report.nodeid} ... FAILED")
    passed = len(reports.get("passed", []))
    terminalreporter.write_line(
        f"test result: {'FAILED' if failed else 'ok'}. {passed} passed; {len(failed)} failed; 0 ignored"
    )


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).parents[3]


@pytest.fixture(scope="session")
def key() -> PrivateKey:
    return PrivateKey.generate(SET)


@pytest.fixture(scope="session")
def other() -> PrivateKey:
    return PrivateKey.generate(SET)


@pytest.fixture(scope="session")
def zk_key() -> hypergrove.zkdilithium.PrivateKey:
    return hypergrove.zkdilithium.PrivateKey.generate()
