"""JSON schemas of the files in MinerU's output folder, of what its documentation says of them.

Source: https://github.com/opendatalab/MinerU, docs/en/reference/output_files.md as of 3.x: "Content List", "Common
Content List V2", and of the VLM backend "Model Inference Results" and "Content List". A type is described there by its
fields; no others are allowed here, so that nobody is surprised. Where the document gives an example alone (`index` in
the first list, the spans), the fields are those that MinerU 4.0's renderer writes.
"""

from __future__ import annotations

from typing import Any, Final

Schema = dict[str, Any]

_TEXT: Final[Schema] = {"type": "string"}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_PATH: Final[Schema] = {"type": "string", "pattern": "^(images/[0-9a-f]{64}\\.jpg)?$"}
_BBOX: Final[Schema] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 0, "maximum": 1000},
    "minItems": 4,
    "maxItems": 4,
}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "properties": required | (optional or {}),
        "required": list(required),
        "additionalProperties": False,
    }


def _entry(type: str, required: Schema, optional: Schema | None = None) -> Schema:
    common = {"type": {"const": type}, "bbox": _BBOX, "page_idx": {"type": "integer", "minimum": 0}}
    return _object(common | required, optional)


def _notes(of: str, item: Schema) -> Schema:
    return {f"{of}_caption": item, f"{of}_footnote": item}


CONTENT_LIST: Final[Schema] = {
    "type": "array",
    "items": {
        "oneOf": [
            _entry("text", {"text": _TEXT}, {"text_level": {"type": "integer", "minimum": 0}}),
            _entry("image", {"img_path": _PATH, **_notes("image", _TEXTS)}, {"sub_type": _TEXT}),
            _entry("chart", {"img_path": _PATH, "content": _TEXT, **_notes("chart", _TEXTS)}, {"sub_type": _TEXT}),
            _entry("table", {"img_path": _PATH, "table_body": _TEXT, **_notes("table", _TEXTS)}),
            _entry("equation", {"img_path": _PATH, "text": _TEXT, "text_format": {"const": "latex"}}),
            _entry("code", {"sub_type": {"enum": ["code", "algorithm"]}, "code_body": _TEXT}, _notes("code", _TEXTS)),
            _entry("list", {"sub_type": {"enum": ["text", "ref_text"]}, "list_items": _TEXTS}),
            _entry("index", {"list_items": _TEXTS}),
            *(
                _entry(type, {"text": _TEXT})
                for type in ("header", "footer", "page_number", "aside_text", "page_footnote")
            ),
        ]
    },
}

_SPAN: Final[Schema] = _object({"type": {"enum": ["text", "equation_inline"]}, "content": _TEXT})
_SPANS: Final[Schema] = {"type": "array", "items": _SPAN}
_SOURCE: Final[Schema] = {"image_source": _object({"path": _PATH})}
_ITEMS: Final[Schema] = {
    "type": "array",
    "items": _object({"item_type": {"const": "text"}, "item_content": _SPANS}),
}


def _entry_v2(type: str, required: Schema, optional: Schema | None = None) -> Schema:
    return _object({"type": {"const": type}, "content": _object(required, optional), "bbox": _BBOX})


CONTENT_LIST_V2: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "array",
        "items": {
            "oneOf": [
                _entry_v2("title", {"title_content": _SPANS, "level": {"type": "integer", "minimum": 1}}),
                _entry_v2("paragraph", {"paragraph_content": _SPANS}),
                _entry_v2("equation_interline", {"math_content": _TEXT, "math_type": {"const": "latex"}, **_SOURCE}),
                _entry_v2("image", {**_SOURCE, **_notes("image", _SPANS)}, {"content": _TEXT}),
                _entry_v2("chart", {**_SOURCE, **_notes("chart", _SPANS), "content": _TEXT}),
                _entry_v2(
                    "table",
                    {
                        **_SOURCE,
                        **_notes("table", _SPANS),
                        "html": _TEXT,
                        "table_type": {"enum": ["simple_table", "complex_table"]},
                        "table_nest_level": {"type": "integer", "minimum": 1},
                    },
                ),
                _entry_v2("code", {"code_content": _SPANS, **_notes("code", _SPANS), "code_language": _TEXT}),
                _entry_v2("algorithm", {"algorithm_content": _SPANS, **_notes("algorithm", _SPANS)}),
                _entry_v2(
                    "list",
                    {"list_type": {"enum": ["text_list", "reference_list"]}, "list_items": _ITEMS},
                    {"attribute": {"enum": ["ordered", "unordered"]}},
                ),
                _entry_v2("index", {"list_type": {"const": "text_list"}, "list_items": _ITEMS}),
                *(
                    _entry_v2(type, {f"{type}_content": _SPANS})
                    for type in ("page_header", "page_footer", "page_number", "page_aside_text", "page_footnote")
                ),
            ]
        },
    },
}

_SHARE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}

MODEL: Final[Schema] = {
    "type": "array",
    "items": {
        "type": "array",
        "items": _object(
            {
                "type": _TEXT,
                "bbox": {"type": "array", "items": _SHARE, "minItems": 4, "maxItems": 4},
                "angle": {"enum": [0, 90, 180, 270, None]},
                "content": {"type": ["string", "null"]},
            },
            {"score": {"type": ["number", "null"]}},
        ),
    },
}
