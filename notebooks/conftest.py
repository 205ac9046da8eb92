"""Kernels that pytest starts import this checkout, whichever one their environment has installed."""

import os

import pytest

from utils import ROOT


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        return (yield)
