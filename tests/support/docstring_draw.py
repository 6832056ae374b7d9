"""Docstrings without their neighbours: `python -m tests.support.docstring_draw --seed 1` draws forty of the package.

Who reads them says what each means, and then looks into the code: at most two are misread.
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import batchocr

PACKAGE = Path(batchocr.__file__).parent


class Docstring(NamedTuple):
    """A docstring, and what an editor shows beside it."""

    where: str
    """The names of the module, class and function that it is in: `tables.parquet.Earlier.kept`."""
    declared: str
    """The line that it is about: a class, a signature, or a field or constant with its type and value."""
    text: str

    def __str__(self) -> str:
        return "\n    ".join(filter(None, (self.where, self.declared, self.text)))


def docstrings() -> Iterator[Docstring]:
    """Every docstring of the package: of modules, classes, functions, fields and constants."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield from _below(ast.parse(path.read_text()), module, "")


def _below(node: ast.AST, where: str, declared: str) -> Iterator[Docstring]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
        yield Docstring(where, declared, text)
    for child, after in pairwise([*ast.iter_child_nodes(node), ast.Pass()]):
        match child, after:
            case ast.ClassDef() | ast.FunctionDef(), _:
                line = next(line for line in ast.unparse(child).splitlines() if not line.startswith("@"))
                yield from _below(child, f"{where}.{child.name}", line)
            case ast.Assign() | ast.AnnAssign(), ast.Expr(ast.Constant(str(text))):
                yield Docstring(where, ast.unparse(child), text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    drawn = random.Random(parser.parse_args().seed).sample(list(docstrings()), 40)
    sys.stdout.write("\n\n".join(map(str, drawn)) + "\n")
