"""Codings of JBIG2 that MuPDF (1.28.2) draws wrong, or not at all, without a word.

Found beside PDFium in pdf.js's test files of one picture in each coding; the others are drawn right, or MuPDF warns.
"""

from __future__ import annotations

import io

_FLAGS = {0: (1, 3), **dict.fromkeys((4, 6, 7), (18, 3)), **dict.fromkeys((20, 22, 23), (17, 128))}
"""Where a segment's flags are, and which flags are drawn wrong if all are set, by the segment's type: symbols and text
that have a Huffman code and are refined, halftones on black. Source of all numbers: ITU-T T.88, section 7."""

_HEAD_BYTES, _FLAGS_END = 6, 19


def is_drawn_wrong(data: bytes) -> bool:
    """Whether a JBIG2 stream has a segment that MuPDF draws wrong, or begins to read at the wrong byte."""
    file = io.BytesIO(data)
    while len(head := file.read(_HEAD_BYTES)) == _HEAD_BYTES:
        number, kind, count = int.from_bytes(head[:4]), head[4] & 63, head[5] >> 5
        if count == 7:  # the number needs four bytes; a bit for each segment that is referred to, and one, follow
            count = int.from_bytes(head[5:] + file.read(3)) & 0x1FFFFFFF
            if (count + 1) % 8:  # MuPDF rounds down to whole bytes, and all behind is misread
                return True
            file.seek((count + 1) // 8, io.SEEK_CUR)
        bytes_each = 1 if number <= 256 else 2 if number <= 65536 else 4
        file.seek(count * bytes_each + (4 if head[4] & 64 else 1), io.SEEK_CUR)
        body = file.read(int.from_bytes(file.read(4))).ljust(_FLAGS_END, b"\0")
        place, bits = _FLAGS.get(kind, (0, 256))  # no byte has such a flag
        is_part_of_page = kind in (40, 42, 43) and not count and any(body[8:16])  # MuPDF refines it from 0, 0 on
        if is_part_of_page or body[place] & bits == bits:
            return True
    return False
