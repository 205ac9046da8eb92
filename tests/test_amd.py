"""The library that lets MKL use AVX-512 on an AMD processor: it is what it says, and products stay right."""

import ctypes
import os
import shutil
import subprocess
import sys

import pytest
import torch

from benchmarks import amd
from utils import UserError, versions

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("gcc") is None,
    reason="needs Linux and a C compiler",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("amd") / "mkl_on_amd.so"
    amd.build(path)
    return path


def test_the_library_answers_yes(library):
    assert ctypes.CDLL(str(library)).mkl_serv_intel_cpu_true() == 1


def test_products_are_right_with_the_library_and_without(library):
    found = amd.products(None), amd.products(library)
    for widths in found:
        assert set(widths) == set(amd.WIDTHS)
        # rounding of sums of at most 1024 terms in single precision
        assert all(seconds > 0 and error < 1e-5 for seconds, error in widths.values())
    assert "1024^3" in amd.table([found])


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="torch has no MKL here")
def test_it_is_this_function_that_mkl_asks(monkeypatch, tmp_path):
    speaking = (
        "long write(int, const void *, unsigned long);\n"
        'int mkl_serv_intel_cpu_true(void) { write(2, "asked", 5); return 1; }\n'
    )
    monkeypatch.setattr(amd, "SOURCE", speaking)
    amd.build(tmp_path / "speaking.so")
    done = subprocess.run(
        [sys.executable, "-c", "import torch; torch.mm(torch.ones(64, 64), torch.ones(64, 64))"],
        env={**os.environ, "LD_PRELOAD": str(tmp_path / "speaking.so")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "asked" in done.stderr


def test_a_run_writes_down_what_was_preloaded(monkeypatch):
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert "LD_PRELOAD" not in versions()
    monkeypatch.setenv("LD_PRELOAD", "/some/where/mkl_on_amd.so:/lib/jemalloc.so")
    assert versions()["LD_PRELOAD"] == "mkl_on_amd.so jemalloc.so"


@pytest.mark.parametrize(
    "change, path, said",
    [
        ({"CC": "no-such-compiler"}, "x.so", "no C compiler"),
        ({"CC": "false"}, "x.so", "failed"),
        ({}, "not/there/x.so", "no directory"),
    ],
)
def test_what_cannot_be_built_is_one_line(change, path, said, monkeypatch, tmp_path):
    for key, value in change.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match=said) as error:
        amd.build(tmp_path / path)
    assert "\n" not in str(error.value)
