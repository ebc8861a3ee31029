"""Attacks the texts that name a ledger: paths with a drive, as Windows has them."""

from __future__ import annotations

import ntpath
from pathlib import PureWindowsPath

import pytest

from ladderholdout.ledger import place, resolve_url


@pytest.mark.parametrize(
    ("stated", "file"),
    [
        ("sqlite:///C:/data/ledger.db", "C:\\data\\ledger.db"),
        ("sqlite:///C:\\data\\ledger.db", "C:\\data\\ledger.db"),
        ("C:\\data\\ledger.db", "C:\\data\\ledger.db"),
        ("c:/My Data/ledger 50%.db", "c:\\My Data\\ledger 50%.db"),
        ("sqlite:///C:/data/ledger.db?timeout=5", "C:\\data\\ledger.db"),
    ],
)
def test_a_path_with_a_drive_is_a_ledger(
    stated: str, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Path() is a Windows path there; here it is told to be, and to make nothing absolute.
    monkeypatch.setattr(place, "_absolute", ntpath.normpath)
    url = resolve_url(stated)
    assert resolve_url(url) == url  # a handle that travels carries it on
    found = place.file_of(url)
    assert PureWindowsPath(str(found)) == PureWindowsPath(file)
    assert PureWindowsPath(str(found)).is_absolute()
    assert place.timeout_of(url) == (5.0 if "timeout" in stated else place.TIMEOUT)
