"""What a family of models is stands in its own two modules and one row of a table; nothing else knows a family."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import batchocr
from batchocr.pages.protocol.families import VERSIONS
from batchocr.planning.families import FAMILIES

PACKAGE = Path(batchocr.__file__).parent
ROOMS = ("planning/families/", "pages/protocol/families/")
OF_THE_EXPORT = {"cli/export.py", "documents/export/formats.py", "documents/export/mineru.py"}
"""Modules in which `mineru` is the name of a format."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules outside of the two rooms, by their paths."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(ROOMS):
            yield name, ast.parse(path.read_text("utf-8"))


def test_every_family_has_a_protocol_with_a_version() -> None:
    assert {family.protocol for family in FAMILIES.values()} == VERSIONS.keys()
    for protocol in VERSIONS:
        assert (PACKAGE / "pages" / "protocol" / "families" / f"{protocol}.py").is_file()


def test_no_module_outside_of_its_rooms_imports_a_familys_module() -> None:
    rooms = [room.rstrip("/").replace("/", ".") for room in ROOMS]
    imported = [
        (name, module)
        for name, tree in modules()
        for node in ast.walk(tree)
        for module in _imported(node)
        if any(module.startswith(f"batchocr.{room}.") for room in rooms)
    ]
    assert imported == []


def _imported(node: ast.AST) -> list[str]:
    """The modules that a statement may import."""
    if isinstance(node, ast.Import):
        return [each.name for each in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        lower = [each.name for each in node.names if each.name.islower()]
        return [node.module, *(f"{node.module}.{each}" for each in lower if _is_module(node.module, each))]
    return []


def _is_module(package: str, name: str) -> bool:
    return (PACKAGE.parent / package.replace(".", "/") / f"{name}.py").is_file()


def test_no_module_outside_of_its_rooms_names_a_family() -> None:
    names = {*FAMILIES, *VERSIONS, *(family.name for family in FAMILIES.values())}
    named = [
        (name, node.value)
        for name, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in names and name not in OF_THE_EXPORT
    ]
    assert named == []
