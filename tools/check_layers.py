#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Fail when a folder includes, or is linked to, what tools/layers.toml says it may not see.

Usage: check_layers.py [repository root]
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.M)
ROOM = re.compile(r"^\s*kerf_room\((\w+)(?:\s+DEPS\s+([\w\s]+))?\)", re.M)


def source_files(root: Path, folder: str) -> Iterator[Path]:
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in {".h", ".cpp"}:
            yield path.relative_to(root)


def is_under(path: Path, folder: str) -> bool:
    return path.is_relative_to(folder)


def includes(root: Path, path: Path) -> Iterator[tuple[str, str]]:
    """Where `path` includes something, and its name as written."""
    text = (root / path).read_text(encoding="utf-8")
    for match in INCLUDE.finditer(text):
        yield f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}", match.group(1)


def hidden_rooms(path: Path, rules: dict) -> tuple[str, set[str]]:
    """The name of the folder that `path` belongs to, and the rooms that it may not include."""
    if is_under(path, "kerf"):
        room = path.parts[1] if len(path.parts) > 2 else "kerf"
        if room not in rules["may_include"]:
            return room, set(rules["may_include"])
        return room, set(rules["may_include"]) - set(rules["may_include"][room]) - {room}
    face = max((face for face in rules["faces"] if is_under(path, face)), key=len)
    return face, set(rules["faces"][face])


def include_errors(root: Path, path: Path, rules: dict) -> Iterator[str]:
    owner, hidden = hidden_rooms(path, rules)
    if is_under(path, "kerf") and owner not in rules["may_include"]:
        yield f"{path}: room {owner!r} has no row in tools/layers.toml"
        return
    for where, name in includes(root, path):
        if name.startswith("kerf/") and name.split("/")[1] in hidden:
            yield f"{where}: {owner} may not include {name}"
        for rule in rules["restricted"]:
            listed = any(
                name.startswith(header) if header.endswith("/") else name == header
                for header in rule["headers"]
            )
            if listed and not any(is_under(path, folder) for folder in rule["only_in"]):
                yield f"{where}: {owner} may not include {name}: {rule['why']}"


def folder_of(path: Path) -> tuple[str, str]:
    """The room of a file kerf/<room>/..., and the folder in it; "" for the room's own files."""
    return path.parts[1], "/".join(path.parts[2:-1])


def kerf_includes(root: Path, path: Path) -> Iterator[tuple[str, Path]]:
    """Those of `path` that lie in kerf/."""
    for where, name in includes(root, path):
        if name.startswith("kerf/"):
            yield where, Path(name)


def inside_errors(root: Path, files: list[Path], rules: dict) -> Iterator[str]:
    """Hold the folders of a room to its table, where it has one."""
    for path in files:
        room, folder = folder_of(path)
        table = rules.get("inside", {}).get(room)
        if table is None:
            continue
        if folder not in table:
            yield f"{path}: folder {folder!r} has no row in [inside.{room}] of tools/layers.toml"
            continue
        for where, included in kerf_includes(root, path):
            other_room, other = folder_of(included)
            if other_room == room and other != folder and other not in table[folder]:
                yield f"{where}: {room}/{folder} may not include {included}"


def cycle_errors(root: Path, files: list[Path]) -> Iterator[str]:
    """No folder of kerf/ includes another that includes it, directly or through others."""
    below: dict[Path, set[Path]] = {}
    for path in files:
        included = {target.parent for _, target in kerf_includes(root, path)}
        below.setdefault(path.parent, set()).update(included - {path.parent})
    reached = {folder: set(direct) for folder, direct in below.items()}
    for through in below:
        for folder in below:
            if through in reached[folder]:
                reached[folder] |= reached[through]
    for folder in sorted(below):
        for other in sorted(reached[folder]):
            if folder < other and folder in reached.get(other, set()):
                yield f"{folder} and {other} include each other, directly or through others"


def link_errors(root: Path, rules: dict) -> Iterator[str]:
    """Compare the rooms that CMake links, through others too, with the include table."""
    cmake = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    direct = {m.group(1): (m.group(2) or "").split() for m in ROOM.finditer(cmake)}

    def linked(room: str) -> set[str]:
        return set(direct[room]).union(*(linked(dep) for dep in direct[room]))

    table = {room: set(deps) for room, deps in rules["may_include"].items() if room != "kerf"}
    for room in sorted(table.keys() | direct.keys()):
        if room not in direct or room not in table:
            yield f"{room}: a room of only one of CMakeLists.txt and tools/layers.toml"
        elif linked(room) != table[room]:
            difference = sorted(linked(room) ^ table[room])
            yield f"{room}: CMakeLists.txt and tools/layers.toml disagree about {difference}"


def main(root: Path) -> int:
    rules = tomllib.loads((root / "tools/layers.toml").read_text(encoding="utf-8"))
    top_folders = ["kerf", *(face for face in rules["faces"] if not is_nested(face, rules))]
    files = [path for folder in top_folders for path in source_files(root, folder)]
    errors = [error for path in files for error in include_errors(root, path, rules)]
    library = [path for path in files if is_under(path, "kerf") and len(path.parts) > 2]
    errors += inside_errors(root, library, rules)
    errors += cycle_errors(root, library)
    errors += link_errors(root, rules)
    for error in errors:
        print(error, file=sys.stderr)
    print(f"layers: {len(files)} files, {len(errors)} errors")
    return 1 if errors else 0


def is_nested(face: str, rules: dict) -> bool:
    return any(face != other and is_under(Path(face), other) for other in rules["faces"])


if __name__ == "__main__":
    repository = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent
    sys.exit(main(repository))
