"""Pictures that an export has cut out of documents, which are no documents unless one is itself an INPUT.

They are known by their names, and by the record that the export keeps in a folder above them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import PurePath
from typing import Final

EXPORT_RECORD: Final = ".batchocr-export.sqlite"
"""The file in its folder by which an export knows what it has written."""

_FOLDERS = (".images", "/images")
_NAME = re.compile(r"page-[0-9]+-block-[0-9]+(-[0-9]+)?\.png|[0-9a-f]{64}\.jpg")


def holds_cuts(folder: str) -> bool:
    """Whether pictures in the folder, given with links resolved, may be an export's."""
    return folder.endswith(_FOLDERS) and any(
        os.path.lexists(above / EXPORT_RECORD) for above in PurePath(folder).parents
    )


def is_cut(name: str) -> bool:
    """Whether this is how an export names the pictures in its folders of them."""
    return _NAME.fullmatch(name) is not None


def cut_objects(uris: Iterable[str]) -> set[str]:
    """Those of the objects of a store that an export has cut, if its record is among them: folders may be copied."""
    cuts, exports = list[str](), list[str]()
    for uri in uris:
        folder, _, name = uri.rpartition("/")
        if name == EXPORT_RECORD:
            exports.append(f"{folder}/")
        elif folder.endswith(_FOLDERS) and is_cut(name):
            cuts.append(uri)
    return {uri for uri in cuts if uri.startswith(tuple(exports))}
