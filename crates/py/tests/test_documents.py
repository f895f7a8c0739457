"""What documents say runs, and the table of figures is that of its record."""

import doctest
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import IS_FULL

import hypergrove
import hypergrove.arrow
import hypergrove.duckdb
import hypergrove.polars
import hypergrove.ray
import hypergrove.spark

# The package that each engine of docs/tables.md comes in. A Python without a GIL has no wheels of most.
PACKAGES = {"pyarrow": "pyarrow", "Polars": "polars", "DuckDB": "duckdb", "Ray": "ray", "Spark": "pyspark"}
OF_TABLES = [hypergrove.arrow, hypergrove.duckdb, hypergrove.polars, hypergrove.ray, hypergrove.spark]


def test_examples_of_documents(repository: Path) -> None:
    for document in ["docs/python.md", "crates/py/README.md"]:
        failed, attempted = doctest.testfile(str(repository / document), module_relative=False)
        assert attempted and not failed, document


@pytest.mark.parametrize("engine", ["pyarrow", "Polars", "DuckDB", "Ray"] + ["Spark"] * IS_FULL)
def test_examples_of_tables(repository: Path, tmp_path: Path, engine: str) -> None:
    pytest.importorskip(PACKAGES[engine], reason=f"{PACKAGES[engine]} is not installed")
    program = Path(__file__).with_name("run_section.py")
    # A process of their own: what engines leave behind and warn of is theirs.
    command = [sys.executable, str(program), str(repository / "docs/tables.md"), "Data", engine]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path, env=environment)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]


@pytest.mark.parametrize("name", ["hypergrove", "hypergrove.files", "hypergrove.zkdilithium", "hypergrove.duckdb", "hypergrove.polars"])
def test_examples_of_docstrings(name: str) -> None:
    package = name.rpartition(".")[2]
    if package in PACKAGES.values():
        pytest.importorskip(package, reason=f"{package} is not installed")
    failed, attempted = doctest.testmod(sys.modules[name])
    assert attempted and not failed


def test_everything_public_is_documented() -> None:
    for module in [hypergrove, hypergrove.files, hypergrove.zkdilithium, *OF_TABLES]:
        for name in module.__all__:
            thing = getattr(module, name)
            if isinstance(thing, (str, int, tuple)):
                continue
            assert thing.__doc__, name
            for method in vars(thing) if isinstance(thing, type) else []:
                assert method.startswith("_") or getattr(thing, method).__doc__, f"{name}.{method}"


def test_the_tables_are_rendered(repository: Path) -> None:
    sys.path.insert(0, str(repository / "crates/py/bench"))
    import awaited
    import compare
    import measure

    page = (repository / "docs/python.md").read_text()
    shown = page.split("<!-- rendered by crates/py/bench/measure.py -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == measure.table(json.loads(measure.RECORD.read_text()))
    shown = page.split("<!-- rendered by crates/py/bench/awaited.py -->\n")[1].split("\n<!-- end -->")[0]
    assert shown == awaited.table(json.loads(awaited.RECORD.read_text()))
    records = [json.loads(line) for line in compare.RECORDS.read_text().splitlines()]
    assert all(record["verified"] for record in records)
    shown = page.split("<!-- rendered by crates/py/bench/compare.py -->\n")[1].split("\n<!-- end of comparison -->")[0]
    assert shown == compare.table(records)


def test_the_tables_of_data_engines_are_rendered(repository: Path) -> None:
    sys.path.insert(0, str(repository / "crates/py/bench"))
    import tables

    page = (repository / "docs/tables.md").read_text()
    for name, text in tables.tables(json.loads(tables.RECORD.read_text())).items():
        shown = page.split(f"<!-- rendered by crates/py/bench/tables.py: {name} -->\n")[1].split("\n<!-- end -->")[0]
        assert shown == text, name


def test_quickstart() -> None:
    program = [sys.executable, "-m", "hypergrove", "quickstart"]
    for rows in ["0", "1", "50"]:
        ran = subprocess.run([*program, "--rows", rows], capture_output=True, text=True, timeout=60)
        assert ran.returncode == 0 and f"a key, {rows} signatures, all valid" in ran.stdout, ran
    ran = subprocess.run([*program, "--set", "rsa"], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 2 and "SLH-DSA-SHA2-128f" in ran.stderr


def test_the_parquet_example(repository: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    example = repository / "crates/py/examples/parquet.py"
    command = [sys.executable, str(example), "--rows", "2500", "--plot", str(tmp_path / "plot.png")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert "2,475 valid, 25 not, as they should be" in ran.stdout, ran.stdout + ran.stderr
