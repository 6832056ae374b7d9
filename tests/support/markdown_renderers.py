"""The Markdown and formula renderers that people use. Those for Markdown let through all they can.

Each takes many texts at once and returns what a browser would be given for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import files
from pathlib import Path
from typing import TypeAlias

import cmarkgfm
import markdown
import mistune
import pykatex
import pypandoc
import quickjs
from cmarkgfm.cmark import Options
from markdown_it import MarkdownIt
from mdit_py_plugins.attrs import attrs_block_plugin, attrs_plugin

Renderer: TypeAlias = Callable[[Sequence[str]], list[str]]

_BETWEEN = "batchocrseparator"
"""A paragraph between two texts that are rendered as one, since starting pandoc takes longer than rendering them."""


def _each(render: Callable[[str], str]) -> Renderer:
    return lambda texts: [render(text) for text in texts]


def _pandoc(format: str) -> Renderer:
    def render(texts: Sequence[str]) -> list[str]:
        """One document; its halves if a text swallowed its neighbour's separator or is refused; '' for that one."""
        try:
            pages = _pandoc_html(f"\n\n{_BETWEEN}\n\n".join(texts), format).split(_BETWEEN)
        except RuntimeError:
            pages = [""]
        if len(pages) == len(texts):
            return pages
        middle = len(texts) // 2
        return render(texts[:middle]) + render(texts[middle:])

    return render


def _pandoc_html(text: str, format: str) -> str:
    """With the document's metadata, which may name scripts and style sheets."""
    options = ["--quiet", "--mathjax=", "--template", str(Path(__file__).with_name("pandoc_template.html"))]
    return str(pypandoc.convert_text(text, "html", format=format, extra_args=options))


def _markdown_it(text: str) -> str:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    reader.use(attrs_plugin, after=("image", "code_inline", "link_close", "span_close"), spans=True)
    reader.use(attrs_block_plugin)
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    return str(reader.render(text))


def _python_markdown(text: str) -> str:
    return markdown.markdown(text, extensions=["extra", "sane_lists", "admonition", "toc", "nl2br"])


_mistune = mistune.create_markdown(
    escape=False, plugins=["table", "footnotes", "strikethrough", "def_list", "abbr", "math", "task_lists"]
)


def _cmark_gfm(text: str) -> str:
    return str(
        cmarkgfm.markdown_to_html_with_extensions(
            text, Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES, ["table", "strikethrough", "tasklist"]
        )
    )


MARKDOWN_RENDERERS: dict[str, Renderer] = {
    "pandoc": _pandoc("markdown"),
    "pandoc, commonmark_x": _pandoc("commonmark_x"),
    "Python-Markdown, extra": _each(_python_markdown),
    "markdown-it, attrs": _each(_markdown_it),
    "mistune": _each(lambda text: str(_mistune(text))),
    "cmark-gfm": _each(_cmark_gfm),
}


def _katex(formula: str) -> str:
    """What KaTeX makes of a formula, as it is set up by default; '' for one that it refuses."""
    try:
        return str(pykatex.renderToString(formula, output="html", strict="ignore"))
    except pykatex.ParseError:
        return ""


def mathjax(formulas: Sequence[str]) -> list[str]:
    """What MathJax 3, with all its packages, makes of each formula."""
    pages: list[str] = json.loads(_mathjax()(json.dumps(formulas)))
    return pages


@cache
def _mathjax() -> Callable[[str], str]:
    context = quickjs.Context()
    context.eval("var console = {log() {}, warn() {}, error() {}}, MathJax = {loader: {load: []}};")
    [core] = [file for file in files("django-static-mathjax") or [] if str(file).endswith("es5/core.js")]
    parts = ("loader", "core", "adaptors/liteDOM", "input/tex-full", "output/chtml", "output/chtml/fonts/tex")
    for part in parts:
        context.eval((Path(str(core.locate())).parent / f"{part}.js").read_text())
    context.eval(_MATHJAX_SCRIPT)
    return context.get("renderAll")


_MATHJAX_SCRIPT = """
    const adaptor = MathJax._.adaptors.liteAdaptor.liteAdaptor();
    MathJax._.handlers.html_ts.RegisterHTMLHandler(adaptor);
    const font = new MathJax._.output.chtml.fonts.tex_ts.TeXFont({fontURL: '#'});
    const OutputJax = new MathJax._.output.chtml_ts.CHTML({font});
    const packages = MathJax._.input.tex.AllPackages.AllPackages;
    const InputJax = new MathJax._.input.tex_ts.TeX({packages});
    const page = MathJax._.mathjax.mathjax.document('', {InputJax, OutputJax});
    function render(formula) {
        try { return adaptor.outerHTML(page.convert(formula, {display: true})); } catch (error) { return ''; }
    }
    function renderAll(formulas) { return JSON.stringify(JSON.parse(formulas).map(render)); }
"""


FORMULA_RENDERERS: dict[str, Renderer] = {"MathJax": mathjax, "KaTeX": _each(_katex)}
