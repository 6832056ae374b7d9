"""The Python interface, with a real model and real workers: rows in order, pages read ahead, nothing left behind."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pymupdf
import pytest
from PIL import Image

import batchocr
from batchocr import Ocr, PageResult
from batchocr.data import Completion
from batchocr.errors import BatchOcrError, EngineError, ModelError, UsageError
from batchocr.processes.questions import Questions
from batchocr.tables.files import report_path
from tests.support.process_template import USE
from tests.support.running import children, draw_pdf, eventually, num_rows, read_rows, run_script, texts, workers_of

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("quick_processes")]

DOCUMENTS = ("two-columns.pdf", "article.pdf", "broken.pdf", "scanned-letter.png")
ROWS = [("two-columns.pdf", 0), ("article.pdf", 0), ("article.pdf", 1), ("broken.pdf", None), ("scanned-letter.png", 0)]


@pytest.fixture(scope="module")
def ocr(model: Path) -> Iterator[Ocr]:
    with Ocr(model=model, dpi=72, workers=1, dtype="float32", device="cpu") as ocr:
        yield ocr


@pytest.fixture(scope="module")
def inputs(sample_data: Path) -> list[Path]:
    return [sample_data / "documents" / name for name in DOCUMENTS]


@pytest.fixture(scope="module")
def rows(ocr: Ocr, inputs: list[Path]) -> list[PageResult]:
    return list(ocr.process(inputs))


@pytest.fixture
def letters(tmp_path: Path) -> list[Path]:
    """Five documents of one page each."""
    return [draw_pdf(tmp_path / f"letter{number}.pdf", f"Letter {number}") for number in range(5)]


def places(rows: list[PageResult]) -> list[tuple[str, int | None]]:
    return [(Path(row.source).name, row.page_index) for row in rows]


def our_threads() -> set[threading.Thread]:
    """Those that read ahead and, in tests, those of engines."""
    return {thread for thread in threading.enumerate() if thread.name in ("batchocr-engine", "batchocr-run")}


def test_rows_come_in_input_order_with_a_failed_document_in_its_place(rows: list[PageResult]) -> None:
    assert places(rows) == ROWS
    assert [row.status for row in rows] == ["ok", "ok", "ok", "failed", "ok"]
    assert rows[3].error_kind == "damaged"


def test_a_page_has_its_text_and_its_blocks_in_place(rows: list[PageResult]) -> None:
    for row in rows:
        if row.page_index is None:
            continue
        assert row.markdown
        assert row.image_tokens > 0 < row.output_tokens
        assert row.blocks
        for block in row.blocks:
            left, top, right, bottom = block.bbox
            assert 0 <= left < right <= 1
            assert 0 <= top < bottom <= 1
            if block.confidence is not None:
                assert 0 < block.confidence <= 1
                assert block.min_logprob is not None
                assert block.min_logprob <= 0


def test_a_second_call_reads_the_same_and_its_table_holds_the_rows_that_process_yields(
    ocr: Ocr, inputs: list[Path], rows: list[PageResult], tmp_path: Path
) -> None:
    report = ocr.run(inputs, out=tmp_path / "table.parquet")
    assert texts(read_rows(tmp_path / "table.parquet")) == texts(rows)
    assert pq.read_table(tmp_path / "table.parquet").num_rows == report.items.found == 5
    assert (report.items.ok, report.items.failed, report.complete, report.exit_code) == (4, 1, True, 3)
    assert report.ledger_adds_up


def test_a_run_logs_how_far_it_is_for_those_who_listen(
    ocr: Ocr, letters: list[Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "batchocr"):
        ocr.run(iter(letters), out=tmp_path / "table.jsonl")
    *_, last = (record.fields for record in caplog.records if getattr(record, "event", "") == "progress")
    assert (last["done"], last["planned"]) == (5, 5)


def test_reading_goes_on_while_the_caller_handles_a_page(model: Path, letters: list[Path]) -> None:
    with Ocr(model=model, dpi=72, workers=1, pages_in_flight=1) as ocr:
        pages = ocr.process(letters)
        next(pages)
        [worker] = workers_of()
        # With one page in flight, letter 3 is opened once letter 2 is begun, and that once letter 1 is finished.
        eventually(lambda: str(letters[3]) in {file.path for file in worker.open_files()})
        assert len(list(pages)) == 4


def test_leaving_the_loop_ends_the_workers_and_the_engine(model: Path, letters: list[Path]) -> None:
    before, threads = children(), our_threads()
    for page in batchocr.process(letters, model=model, dpi=72, workers=2, pages_in_flight=1):  # not all by now
        assert len(workers_of()) == 2
        assert len(our_threads() - threads) == 2
        assert page.page_index == 0
        break
    assert set(children()) <= set(before)
    assert our_threads() == threads


def test_an_engine_that_breaks_ends_the_run_with_its_error_and_the_next_one_reads(
    ocr: Ocr, letters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_down(*_: object, **__: object) -> None:
        raise RuntimeError("the device is gone")

    with monkeypatch.context() as broken:
        broken.setattr("batchocr.engine.decode_stage.DecodeStage.run", break_down)
        with pytest.raises(EngineError, match="RuntimeError: the device is gone"):
            list(ocr.process(letters))
    assert workers_of() == []
    assert [row.status for row in ocr.process(letters[0])] == ["ok"]


@pytest.mark.long
def test_one_model_reads_for_one_loop_at_a_time(ocr: Ocr, letters: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "table.parquet"
    ocr.run(letters[0], out=out)
    report = report_path(out).read_bytes()
    pages = ocr.process(letters)
    next(pages)
    with pytest.raises(UsageError, match="is already reading"):
        ocr.run(letters, out=out)
    assert report_path(out).read_bytes() == report
    assert len(list(pages)) == 4
    assert len(list(ocr.process(letters[0]))) == 1


def test_no_signal_handler_is_installed(ocr: Ocr, letters: list[Path]) -> None:
    before = handlers()
    pages = ocr.process(letters[0])
    next(pages)
    assert handlers() == before
    assert list(pages) == []
    assert handlers() == before


def handlers() -> dict[int, object]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def test_the_order_is_kept_where_pages_are_picked_and_limited(ocr: Ocr, tmp_path: Path) -> None:
    draw_pdf(tmp_path / "b.pdf", "one", "two", "three")
    draw_pdf(tmp_path / "a.pdf", "one", "two", "three")
    inputs = [tmp_path / "b.pdf", tmp_path / "a.pdf"]
    rows = ocr.process(inputs, pages="r1,1", limit=3)
    assert places(list(rows)) == [("b.pdf", 0), ("b.pdf", 2), ("a.pdf", 0)]


def test_what_cannot_be_asked_for_is_refused(model: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        batchocr.process(tmp_path / "none", model=model)
    with pytest.raises(UsageError, match="content must be bytes"):
        batchocr.process(("a.txt", "text"), model=model)
    for inputs in ((), ("none",), ("none", tmp_path / "none")):
        with pytest.raises(BatchOcrError) as caught:
            batchocr.process(inputs, model=model)
        assert "bytes" not in str(caught.value)
    with pytest.raises(UsageError, match="did you mean 'workers'"):
        batchocr.process(tmp_path, worker=2)  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="the recipe gpu9 cannot be read"):
        batchocr.process(tmp_path, recipe="gpu9")
    with pytest.raises(UsageError, match="--device 'meta': write it as auto, cpu, cuda:0"):
        Ocr(device="meta")
    with pytest.raises(UsageError, match="must end in"):
        batchocr.run(tmp_path, out=tmp_path / "table.csv")
    with Ocr(model=model, overwrite=True) as ocr, pytest.raises(UsageError, match="must end in"):
        ocr.run(draw_pdf(tmp_path / "letter.pdf", "letter"), out=tmp_path / "table.csv")
    assert os.listdir(tmp_path) == ["letter.pdf"]


def test_documents_in_memory_are_read_like_files_in_their_place(ocr: Ocr, letters: list[Path]) -> None:
    [from_file] = ocr.process(letters[0])
    with pymupdf.open(letters[1]) as document:
        image = document[0].get_pixmap(dpi=72).pil_image()
    with letters[0].open("rb") as file:
        rows = list(ocr.process([("photo", image), letters[2], ("again.pdf", file), ("torn", b"no document")]))
    assert [row.source for row in rows] == ["photo", str(letters[2]), "again.pdf", "torn"]
    assert [row.error_kind for row in rows] == [None, None, None, "unsupported"]
    assert texts([rows[2]]) == texts([replace(from_file, source="again.pdf")])
    assert (rows[0].width, rows[0].height) == image.size
    assert [row.source for row in ocr.process(("one.pdf", letters[0].read_bytes()))] == ["one.pdf"]


def test_a_run_over_documents_in_memory_continues_where_their_bytes_are_the_same(
    model: Path, letters: list[Path], tmp_path: Path
) -> None:
    options = {"out": tmp_path / "table.parquet", "model": model, "dpi": 72, "max_new_tokens": 8, "workers": 1}
    contents = {f"scan-{number}": letter.read_bytes() for number, letter in enumerate(letters)}
    assert batchocr.run(contents.items(), **options, limit=2).pages_read == 2
    assert batchocr.run(contents.items(), **options).pages_read == 3
    contents["scan-4"] = contents["scan-0"]
    report = batchocr.run(contents.items(), **options)
    assert (report.pages_read, report.saved.pages, report.items.already_done) == (0, 1, 4)
    assert [row.source for row in read_rows(options["out"])] == list(contents)
    assert not [name for name in os.listdir("/proc/self/fd") if "batchocr-document" in target_of(name)]


def target_of(descriptor: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except FileNotFoundError:  # that by which the folder was listed
        return ""


def test_what_a_relative_path_means_is_settled_by_the_call(
    ocr: Ocr, letters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(letters[0].parent)
    pages = ocr.process(["letter0.pdf", "letter[12].pdf"])
    monkeypatch.chdir("/")
    assert [(row.source, row.status) for row in pages] == [(f"letter{number}.pdf", "ok") for number in range(3)]


def test_a_path_is_neither_a_list_nor_standard_input(
    ocr: Ocr, letters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(letters[0].parent)
    names = ["-", "@letter.pdf"]
    for name in names:
        letters[0].with_name(name).write_bytes(letters[0].read_bytes())
    assert [(row.source, row.status) for row in ocr.process([Path(name) for name in names])] == [
        (name, "ok") for name in names
    ]


@pytest.mark.long
def test_a_program_may_have_closed_its_standard_descriptors(model: Path, letters: list[Path], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        """
import os, sys
import batchocr
*inputs, model, out = sys.argv[1:]
for descriptor in range(3):
    os.close(descriptor)
statuses = [row.status for row in batchocr.process(inputs, model=model)]
with open(out, "w") as file:
    file.write(" ".join(statuses))
"""
    )
    command = [sys.executable, tmp_path / "script.py", letters[0], model, tmp_path / "said"]
    subprocess.run(command, timeout=60, check=False)
    assert (tmp_path / "said").read_text() == "ok"


def test_an_input_that_is_no_path_and_no_document_is_refused(ocr: Ocr, letters: list[Path]) -> None:
    image = Image.new("RGB", (9, 9))
    for inputs in ([letters[0].read_bytes()], letters[0].read_bytes(), [5], [("a", b"x", 3)], image, [image], 5):
        with pytest.raises(UsageError, match="an input is a path, or a pair of a name and a document in memory"):
            ocr.process(inputs)  # type: ignore[arg-type]


@pytest.mark.long
def test_what_nothing_loaded_depends_on_can_be_chosen_for_each_call(ocr: Ocr, tmp_path: Path) -> None:
    document, out = draw_pdf(tmp_path / "three.pdf", "One", "Two", "Three"), tmp_path / "table.jsonl"
    ocr.run(document, out=out, pages="2-3")
    assert ocr.run(document, out=out).items.already_done == 2
    assert ocr.run(document, out=out, overwrite=True).items.already_done == 0
    assert (
        ocr.run(document, out=out, report=tmp_path / "report.json", max_page_error_rate=0.5).max_page_error_rate == 0.5
    )
    assert (tmp_path / "report.json").exists()
    with pymupdf.open() as locked:
        locked.new_page()
        locked.save(tmp_path / "locked.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="open sesame")
    [refused], [read] = (list(ocr.process(tmp_path / "locked.pdf", password=word)) for word in (None, "open sesame"))
    assert (refused.error_kind, read.page_count) == ("encrypted", 1)


def test_what_is_fixed_when_an_ocr_is_made_is_refused_for_a_call(ocr: Ocr, letters: list[Path], tmp_path: Path) -> None:
    for name, value in (("workers", 2), ("model", "other"), ("dpi", 100), ("recipe", "cpu")):
        with pytest.raises(UsageError, match=f"^{name} is fixed when an Ocr is made"):
            ocr.process(letters, **{name: value})
    with pytest.raises(UsageError, match="did you mean 'pages'"):
        ocr.process(letters, page="1")  # type: ignore[call-arg]
    assert not (tmp_path / "table.jsonl.journal").exists()


def test_a_run_tells_its_caller_how_far_it_is(ocr: Ocr, letters: list[Path], tmp_path: Path) -> None:
    seen: list[batchocr.RunProgress] = []
    ocr.run(letters, out=tmp_path / "table.jsonl", progress=seen.append)
    assert (seen[-1].done, seen[-1].planned, seen[-1].all_planned) == (5, 5, True)
    assert [state.done for state in seen] == sorted(state.done for state in seen)


def test_an_error_in_the_callers_progress_ends_the_run_and_keeps_what_was_read(
    ocr: Ocr, letters: list[Path], tmp_path: Path
) -> None:
    def fail(state: batchocr.RunProgress) -> None:
        if state.read:
            raise ZeroDivisionError

    out = tmp_path / "table.jsonl"
    with pytest.raises(ZeroDivisionError):
        ocr.run(letters, out=out, progress=fail)
    assert workers_of() == []
    assert ocr.run(letters, out=out).items.already_done >= 1


def test_a_run_without_the_time_to_begin_a_page_says_so(ocr: Ocr, letters: list[Path], tmp_path: Path) -> None:
    for given in ({"stop_after": 0.001}, {"stop": batchocr.StopSwitch(0.001)}):
        with pytest.raises(UsageError, match=r"--stop-after was over before the first page .*: starting up took \d+ s"):
            ocr.run(letters, out=tmp_path / "table.jsonl", **given)
    assert not (tmp_path / "table.jsonl.journal").exists()


def test_a_run_can_be_stopped_from_another_thread_and_continued(
    model: Path, letters: list[Path], tmp_path: Path
) -> None:
    out, stop, read = tmp_path / "table.jsonl", batchocr.StopSwitch(), threading.Event()

    def stop_once_something_is_read() -> None:
        read.wait()
        stop.request()

    threading.Thread(target=stop_once_something_is_read, daemon=True).start()

    def watch(state: batchocr.RunProgress) -> None:
        if state.read:
            read.set()

    options = {"out": out, "model": model, "dpi": 72, "workers": 1, "max_new_tokens": 16}
    report = batchocr.run(letters, **options, pages_in_flight=1, stop=stop, progress=watch)
    assert (report.exit_reason, report.exit_code) == ("stopped", 75)
    assert 1 <= report.pages_read < 5
    assert not out.exists()
    assert batchocr.run(letters, **options).items.already_done == report.pages_read


MORE_THAN_ARE_READ = 40
"""Documents of a run that is interrupted when it has read two: those that it reads until the signal comes, and more."""

INTERRUPTED = f"""{USE}
import signal, sys
import batchocr

signal.signal(signal.SIGINT, signal.default_int_handler)  # these tests may run where it is ignored
batchocr.run("letters", out="table.jsonl", model=sys.argv[1], dpi=72, workers=1, pages_in_flight=4)
"""


def test_ctrl_c_in_a_program_finishes_the_pages_in_flight_and_is_then_raised(model: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "script.py").write_text(INTERRUPTED)
    for number in range(MORE_THAN_ARE_READ):
        draw_pdf(tmp_path / "letters" / f"letter{number:02}.pdf", f"Letter {number}")
    out = tmp_path / "table.jsonl"
    command = [sys.executable, tmp_path / "script.py", model]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as program:
        eventually(lambda: program.poll() is not None or num_rows(out) >= 2)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=60)
    assert program.returncode == -signal.SIGINT
    assert said.count("Traceback") == 1
    assert said.endswith("KeyboardInterrupt\n")
    report = json.loads(report_path(out).read_text())
    assert (report["exit_reason"], report["pages_read"]) == ("interrupted", num_rows(out))
    assert 4 <= num_rows(out) < MORE_THAN_ARE_READ


def test_after_close_every_call_says_that_it_is_closed(model: Path, letters: list[Path], tmp_path: Path) -> None:
    ocr = Ocr(model=model, dpi=72)
    begun_late = ocr.process(letters)
    ocr.close()
    ocr.close()
    out = tmp_path / "table.parquet"
    for use in (lambda: ocr.process(letters), lambda: ocr.run(letters, out=out), ocr.__enter__, begun_late.__next__):
        with pytest.raises(UsageError, match="this Ocr is closed"):
            use()
    assert not (tmp_path / "table.parquet.journal").exists()


FORKING = f"""{USE}
import os, sys, warnings
import batchocr

warnings.simplefilter("ignore")  # newer versions of Python warn of the fork
options = {{"model": sys.argv[1], "dpi": 72, "max_new_tokens": 8, "workers": 1}}
ocr = batchocr.Ocr(**options)
pages = ocr.process("letters")
print(next(pages).source, flush=True)
if os.fork() == 0:
    anew = batchocr.process("letters", **options)
    for use in (lambda: next(pages), lambda: ocr.process("letters")):
        try:
            use()
        except batchocr.UsageError as error:
            print(f"refused: {{error}}", flush=True)
    print(next(anew).source, flush=True)
    ocr.close()
    sys.exit()
os.wait()
print(*(page.source for page in pages), flush=True)
"""


@pytest.mark.long
def test_a_fork_after_use_reads_anew_and_leaves_its_parent_reading(model: Path, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "script.py").write_text(FORKING)
    for number in range(9):
        draw_pdf(tmp_path / "letters" / f"letter{number}.pdf", f"Letter {number}")
    first, loop, same, anew, rest = run_script(tmp_path / "script.py", model, tmp_path)
    assert first == "letter0.pdf"
    assert loop.startswith("refused: this loop was begun before the fork")
    assert same.startswith("refused: this Ocr is of the process that this one was forked from")
    assert anew == "letter0.pdf"
    assert rest.split() == [f"letter{number}.pdf" for number in range(1, 9)]


def test_a_loop_that_is_never_begun_loads_no_model(letters: list[Path], tmp_path: Path) -> None:
    pages = batchocr.process(letters, model=tmp_path / "no model")
    with pytest.raises(ModelError):
        next(pages)


@pytest.mark.long
def test_ctrl_c_while_a_loop_is_being_left_waits_for_what_reads_ahead(
    ocr: Ocr, letters: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    pages, threads, take = ocr.process(letters), our_threads(), Questions.take_answers
    next(pages)

    def take_slowly(questions: Questions) -> list[tuple[int, tuple[Completion, ...]]]:
        time.sleep(0.5)
        return take(questions)

    monkeypatch.setattr(Questions, "take_answers", take_slowly)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pages.close()  # type: ignore[attr-defined]
    finally:
        signal.signal(signal.SIGINT, before)
        monkeypatch.setattr(Questions, "take_answers", take)
    assert our_threads() == threads
    assert workers_of() == []
    assert len(list(ocr.process(letters))) == len(letters)


@pytest.mark.long
def test_an_ocr_that_is_closed_while_a_loop_is_open_lets_it_end(model: Path, letters: list[Path]) -> None:
    before = our_threads()
    ocr = Ocr(model=model, dpi=72, workers=1, max_new_tokens=8)
    pages = ocr.process(letters)
    next(pages)
    ocr.close()
    assert len(list(pages)) == len(letters) - 1
    assert our_threads() == before
