# SPDX-FileCopyrightText: The Kerf authors
# SPDX-License-Identifier: Apache-2.0
"""Files that are used again while what they were made from is the same.

Beside the files of a cache lies ``NAME.key.json``: what they were made from, line by line, and the
hashes of the files. A difference is told, and the files are made again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from kerf._arguments import told_apart
from kerf._errors import warn

T = TypeVar("T")
_FORMAT = "kerf-cache 1.0"


class Cache:
    """One cache. ``made_from``: texts by what they are, such as ``{"torch": "2.11"}``."""

    def __init__(self, kind: str, name: str | os.PathLike[str], made_from: dict[str, str]) -> None:
        self.kind = kind
        self.path = Path(name)
        self.made_from = made_from

    def get(
        self,
        paths: Sequence[Path],
        load: Callable[[], T],
        make: Callable[[], T],
        save: Callable[[T], Any],
    ) -> T:
        """What ``load`` reads from the files if they are as they should be, else what ``make``
        makes, saved. ``load`` raises ValueError for files that will not do after all."""
        reason = self._difference(paths)
        if reason is None:
            try:
                return load()
            except (ValueError, OSError, NotImplementedError) as error:
                reason = f"cannot be used ({error})"
        if reason:
            warn(f"kerf.pipe_model: the {self.kind} cache '{self.path}' {reason}; it is made again")
        made = make()
        self._key.unlink(missing_ok=True)  # files without a key count for nothing
        save(made)
        self._write(paths)
        return made

    @property
    def _key(self) -> Path:
        return self.path.with_name(self.path.name + ".key.json")

    def _difference(self, paths: Sequence[Path]) -> str | None:
        """Why the files do not do; None when they do, "" when there are none."""
        if not self._key.exists():
            return "has no key beside it" if self.path.exists() else ""
        try:
            key = json.loads(self._key.read_text())
            was, hashes = dict(key["made_from"]), dict(key["files"])
            known = key["format"] == _FORMAT
        except (ValueError, KeyError, TypeError, OSError):
            return "has a damaged key"
        if not known:
            return "was written by another version of Kerf"
        for name in {**was, **self.made_from}:
            if was.get(name) != self.made_from.get(name):
                a, b = told_apart(str(was.get(name)), str(self.made_from.get(name)))
                return f"was made with another {name} ({a} instead of {b})"
        for path in paths:
            if not path.exists() or hashes.get(path.name) != _digest(path):
                return f"is damaged ('{path.name}')"
        return None

    def _write(self, paths: Sequence[Path]) -> None:
        key = {
            "format": _FORMAT,
            "made_from": self.made_from,
            "files": {path.name: _digest(path) for path in paths},
        }
        new = self._key.with_name(f"{self._key.name}.{os.getpid()}")
        new.write_text(json.dumps(key, indent=1) + "\n")
        new.replace(self._key)


def check_is_cache(path: str) -> None:
    """Raises OSError for a file of something else, which a cache would overwrite."""
    try:
        with open(path, "rb") as file:
            start = file.read(256)
    except FileNotFoundError:
        return
    if start and b"kerf-" not in start:
        raise OSError(
            f"[kerf.pipe_model] '{path}' is there already and is no cache; expected a new file, or "
            "one that Kerf has written; give another name"
        )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
