"""The promises of SECURITY.md that no other test proves."""

from __future__ import annotations

import ast
import json
import logging
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pymupdf
import pytest

import batchocr
from batchocr.cli.console import JsonFormatter, TextFormatter
from batchocr.errors import ModelError
from tests.pages.rendering import render
from tests.support.running import command, draw_pdf, eventually, make_quick_model, workers_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

PASSWORD = "correct-horse-7141"
HOSTILE_NAME = "\x1b]0;owned\x07\x9b2J\u202egpj.pdf"
PACKAGE = Path(batchocr.__file__).parent

# --- the code --------------------------------------------------------------------------------------------------------

FORBIDDEN_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
FORBIDDEN_CALLS = {"eval", "exec", "os.system", "os.popen", "torch.load", "numpy.load", "subprocess.getoutput"}


def trees() -> Iterator[tuple[Path, ast.AST]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path, ast.parse(path.read_text())


def imported(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    return {node.module} if isinstance(node, ast.ImportFrom) and node.module else set()


def test_nothing_that_unpickles_is_imported_and_nothing_that_runs_text_is_called() -> None:
    for path, tree in trees():
        for node in ast.walk(tree):
            assert not imported(node) & FORBIDDEN_MODULES, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in FORBIDDEN_CALLS, path


def test_no_command_goes_through_a_shell_and_no_model_brings_code() -> None:
    keywords = [
        (path, keyword.arg, ast.unparse(keyword.value))
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg in ("shell", "trust_remote_code")
    ]
    assert all(value == "False" for _, _, value in keywords), keywords
    assert any(name == "trust_remote_code" for _, name, _ in keywords)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.mark), "w")


@pytest.fixture
def trapped_model(tmp_path: Path) -> Path:
    """A model with code and a pickle alongside its weights, each of which would leave a mark."""
    folder = make_quick_model(tmp_path / "trapped")
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Trap(tmp_path / "unpickled")))
    (folder / "trap.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nclass Trap: pass\n")
    for name, classes in (("config.json", "AutoModel"), ("tokenizer_config.json", "AutoTokenizer")):
        path = folder / name
        trap = ["trap.Trap", "trap.Trap"] if classes == "AutoTokenizer" else "trap.Trap"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"auto_map": {classes: trap}}))
    return folder


def test_a_model_runs_no_code_of_its_own(trapped_model: Path, tmp_path: Path) -> None:
    document = draw_pdf(tmp_path / "a.pdf", "text")
    [row] = batchocr.process(document, model=trapped_model, dpi=36, max_new_tokens=8)
    assert row.page_index == 0
    (trapped_model / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no pickled weights"):
        list(batchocr.process(document, model=trapped_model))
    assert not (tmp_path / "imported").exists()
    assert not (tmp_path / "unpickled").exists()


def test_only_workers_and_engines_are_started_as_programs() -> None:
    starting = {"subprocess", "multiprocessing", "pty"}
    assert [path.name for path, tree in trees() if any(imported(node) & starting for node in ast.walk(tree))] == [
        "child.py"
    ]


# --- rendering -------------------------------------------------------------------------------------------------------


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that nobody should connect to."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        yield server


def pdf(*objects: bytes) -> bytes:
    """A PDF of these objects, numbered from 1; the first is its catalogue. It has no xref table: MuPDF rebuilds it."""
    numbered = b"".join(b"%d 0 obj %s endobj\n" % (number, body) for number, body in enumerate(objects, 1))
    return b"%PDF-1.7\n" + numbered + b"trailer <</Root 1 0 R>>\n"


def pdf_that_points_elsewhere(file: Path, url: str) -> bytes:
    """A PDF whose content, image, font, form and annotations point to a file or a URL, and which asks to open both."""
    name = str(file).encode()
    at_url = f"<</Type/Filespec/FS/URL/F({url})>>".encode()
    actions = b"[<</S/URI/URI(%s)>> <</S/Launch/F(%s)>> <</S/SubmitForm/F %s>>]" % (url.encode(), name, at_url)
    external = b"<</Length 0/F(%s)>>stream\n\nendstream" % name
    image = (
        b"<</Subtype/Image/Width 1/Height 1/ColorSpace/DeviceGray/BitsPerComponent 8/Length 0/F %s>>stream\n\nendstream"
    )
    form = b"<</Subtype/Form/BBox[0 0 99 99]/Length 0/Ref<</F %s/Page 0>>>>stream\n\nendstream" % at_url
    font = b"<</Type/Font/Subtype/TrueType/BaseFont/Odd/FontDescriptor<</FontFile2 6 0 R/FontName/Odd/Flags 32>>>>"
    return pdf(
        b"<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(app.launchURL('%s'))>>>>" % url.encode(),
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents[4 0 R 5 0 R]/Resources<</XObject<</I 6 0 R/X 7 0 R>>"
        b"/Font<</F %s>>>>/AA<</O %s>>/Annots[<</Subtype/Link/Rect[0 0 9 9]/A<</S/URI/URI(%s)>>>>]>>"
        % (font, actions, url.encode()),
        external,
        b"<</Length 57>>stream\nq 99 0 0 99 0 0 cm /I Do Q /X Do BT /F 9 Tf (text) Tj ET        \nendstream",
        image % at_url,
        form,
    )


def test_a_pdf_that_points_to_files_and_urls_opens_none_of_them(tmp_path: Path, listener: socket.socket) -> None:
    secret = tmp_path / "secret.txt"
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
    (tmp_path / "a.pdf").write_bytes(pdf_that_points_elsewhere(secret, url))
    without = render(tmp_path / "a.pdf").image.tobytes()
    secret.write_bytes(b"0 0 99 99 re f")  # as page content, it would paint the page black
    assert render(tmp_path / "a.pdf").image.tobytes() == without
    with pytest.raises(BlockingIOError):
        listener.accept()


# --- passwords -------------------------------------------------------------------------------------------------------


@pytest.fixture
def encrypted(tmp_path: Path) -> Path:
    path = draw_pdf(tmp_path / "plain.pdf", "secret", "secret")
    with pymupdf.open(path) as document:
        document.save(
            tmp_path / "encrypted.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw=PASSWORD, owner_pw=PASSWORD
        )
    path.unlink()
    return tmp_path / "encrypted.pdf"


def test_a_password_is_in_no_output_and_on_no_workers_command_line(
    encrypted: Path, model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "table.jsonl"
    options = ("--model", model, "--log-format", "json", "--verbose")
    with subprocess.Popen(
        [sys.executable, "-m", "batchocr", "run", encrypted, tmp_path / "missing.pdf", "--out", out, *options],
        env={**os.environ, "BATCHOCR_PASSWORD": PASSWORD},
        stderr=subprocess.PIPE,
        text=True,
    ) as run:
        command_lines = eventually(lambda: [worker.cmdline() for worker in workers_of(psutil.Process(run.pid))])
        _, said = run.communicate(timeout=120)
    assert run.returncode == 3
    assert not any(PASSWORD in argument for line in command_lines for argument in line)
    assert PASSWORD not in said
    written = [path for path in tmp_path.iterdir() if path != encrypted]
    assert len(written) >= 3
    assert not any(PASSWORD.encode() in path.read_bytes() for path in written)


# --- the terminal ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_format", ["text", pytest.param("json", marks=pytest.mark.long)])
def test_a_file_name_that_commands_the_terminal_is_spelt_out(model: Path, tmp_path: Path, log_format: str) -> None:
    (tmp_path / HOSTILE_NAME).write_bytes(b"%PDF-1.7 nothing")
    arguments = command(tmp_path, "--out", tmp_path / "t.jsonl", "--model", model, "--log-format", log_format)
    said = subprocess.run(arguments, capture_output=True, timeout=120, check=False).stderr.decode()
    assert "gpj.pdf" in said
    assert is_harmless(said)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_an_error_that_commands_the_terminal_is_spelt_out(
    formatter: TextFormatter | JsonFormatter, caplog: pytest.LogCaptureFixture
) -> None:
    try:
        raise ValueError(HOSTILE_NAME)
    except ValueError:
        logging.getLogger("batchocr").exception("failed: %s", HOSTILE_NAME)
    line = formatter.format(caplog.records[0])
    assert "gpj.pdf" in line
    assert is_harmless(line)


def is_harmless(said: str) -> bool:
    """Whether none of its characters moves the cursor, colours anything or reorders letters."""
    return all(character.isprintable() or character == "\n" for character in said)
