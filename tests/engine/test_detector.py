"""A layout detector in the engine: what it finds is what transformers' model and post-processing find."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForObjectDetection

from batchocr.data import Completion, Pixels, Request, Sampling
from batchocr.engine.backend.device import Device
from batchocr.engine.backend.reference import Ops
from batchocr.engine.engine import Engine
from batchocr.engine.model.checkpoint import Model, load_model
from batchocr.engine.model.detector import Detector, prepared
from batchocr.errors import ModelError, PageError
from batchocr.pages.input.render import open_document
from batchocr.planning.architecture import DetectorUse
from batchocr.planning.checkpoint_files import fingerprints
from batchocr.planning.detector import find_detector
from batchocr.processes.meter import Meter
from tests.support.checkpoints import SMALL_LIMITS, answers_of, make_checkpoint
from tests.support.detectors import make_detector, transformers_post_process
from tests.support.jobs import FULL

CPU = torch.device("cpu")
LIMITS = replace(SMALL_LIMITS, max_new_tokens=4, layout_batch_size=2)
FINGERPRINT = "d" * 64
NUM_PAGES = 10 if FULL else 2


def noise(number: int) -> Pixels:
    shape = (90 + number, 70 + 3 * number, 3)
    values = np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)
    return Pixels(*shape[:2], memoryview(bytearray(values.tobytes())))


def pages_of(documents: Sequence[Path]) -> list[Pixels]:
    """As many pages as asked for: the first two of each document, also at a higher resolution if these are fewer."""
    found: list[Pixels] = []
    for path, dpi in ((path, dpi) for dpi, path in product((100, 150, 200), documents)):
        try:
            document = open_document(str(path), password=None, dpi=dpi)
        except PageError:
            continue
        for index in range(min(2, document.page_count)):
            image = document.render(index).image
            found.append(Pixels(image.height, image.width, memoryview(bytearray(image.tobytes()))))
        document.close()
    return found[:NUM_PAGES]


@pytest.fixture(scope="module")
def pages(sample_data: Path) -> list[Pixels]:
    """Real ones if BATCHOCR_CORPUS says where they are, else sample documents."""
    corpus = os.environ.get("BATCHOCR_CORPUS")
    folder = Path(corpus, "real") if corpus else sample_data / "documents"
    return pages_of(sorted(folder.glob("*")))


@pytest.fixture(scope="module", params=[pytest.param("V2", marks=pytest.mark.long), "V3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_detector(tmp_path_factory.mktemp(request.param), request.param, bias=-2.5)


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Detector:
    return Detector(make_detector(tmp_path_factory.mktemp("detector")), Device(CPU))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("checkpoint"))
    return load_model(checkpoint, device=Device(CPU), dtype=torch.float32, ops=Ops(CPU))


def expected_input(page: Pixels) -> Tensor:
    """As transformers' image processor makes it on a GPU, with torchvision, and divides by 255."""
    image = torch.frombuffer(page.data, dtype=torch.uint8).view(1, page.height, page.width, 3).permute(0, 3, 1, 2)
    size = torch.nn.functional.interpolate(image.float(), size=(800, 800), mode="bicubic", antialias=False)
    # In one order in memory: in another, convolutions round otherwise, and queries that are alike change places.
    return size.clamp(0, 255).round().to(torch.uint8).float().contiguous() / 255


@pytest.mark.parametrize("field", ["class_order", "class_thresholds"])
def test_a_detector_that_cannot_run_says_what_its_config_lacks(tmp_path: Path, field: str) -> None:
    config = make_detector(tmp_path, "V2") / "config.json"
    config.write_text(
        json.dumps({name: value for name, value in json.loads(config.read_text()).items() if name != field})
    )
    with pytest.raises(
        ModelError, match=f"the layout detector in .* cannot run: .*its config.json says nothing of .*{field}"
    ):
        Detector(tmp_path, Device(CPU))


@pytest.mark.slow
@torch.inference_mode()
def test_outputs_boxes_classes_and_order_are_those_of_transformers(folder: Path, pages: list[Pixels]) -> None:
    ours, theirs = Detector(folder, Device(CPU)), AutoModelForObjectDetection.from_pretrained(folder).eval()
    assert len(pages) == NUM_PAGES
    num_boxes = 0
    for page in pages:
        outputs = theirs(expected_input(page))
        for mine, other in zip(
            ours.outputs([page]), (outputs.logits, outputs.pred_boxes, outputs.order_logits), strict=True
        ):
            torch.testing.assert_close(mine, other, atol=1e-4, rtol=0)
        [expected] = transformers_post_process(outputs)
        answer = json.loads(ours.answer(ours.detect([page])[0]).text or "[]")
        labels = [theirs.config.id2label[int(label)] for label in expected["labels"]]
        parts = zip(labels, expected["scores"], expected["boxes"], expected["order_seq"], strict=True)
        # Two classes of one box have one place in the order.
        by_place = sorted(parts, key=lambda part: (int(part[3]), -float(part[1])))
        assert [label for label, *_ in answer] == [label for label, *_ in by_place]
        for (_, score, *box), (_, expected_score, expected_box, _) in zip(answer, by_place, strict=True):
            assert [score, *box] == pytest.approx([float(expected_score), *expected_box.tolist()], abs=1e-4)
        num_boxes += len(answer)
    assert num_boxes > 2 * NUM_PAGES


def cubic(distance: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """OpenCV's INTER_CUBIC: Keys' kernel with a = -0.75."""
    x = np.abs(distance)
    near = (1.25 * x - 2.25) * x * x + 1
    far = ((-0.75 * x + 3.75) * x - 6) * x + 3
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def test_pages_are_resized_as_opencv_does_it() -> None:
    page = noise(3)
    image = np.frombuffer(page.data, dtype=np.uint8).reshape(page.height, page.width, 3).astype(float)
    for axis, length in ((0, page.height), (1, page.width)):
        centres = (np.arange(800) + 0.5) * length / 800 - 0.5
        weights = np.zeros((800, length))
        for tap in range(-1, 3):
            at = np.floor(centres).astype(int) + tap
            np.add.at(weights, (np.arange(800), at.clip(0, length - 1)), cubic(centres - at))
        image = np.moveaxis(np.tensordot(weights, image, (1, axis)), 0, axis)
    expected = image.clip(0, 255).round()
    pixels = torch.frombuffer(page.data, dtype=torch.uint8).view(page.height, page.width, 3)
    ours = prepared(pixels).permute(1, 2, 0).numpy() * 255
    assert np.abs(ours - expected).max() <= 1.01
    assert (np.abs(ours - expected) > 0.5).mean() < 1e-3  # a half is rounded either way


def ask(engine: Engine, requests: dict[int, Request], meter: Meter | None = None) -> dict[int, Completion]:
    for number, request in requests.items():
        assert engine.submit(number, request) is None
    return answers_of(engine, meter)


def layout(number: int) -> Request:
    return Request(noise(number), "", Sampling(1), detector=FINGERPRINT)


@pytest.mark.slow
def test_layouts_come_in_batches_of_their_own_beside_the_two_stages(model: Model, detector: Detector) -> None:
    blank = Request(Pixels(56, 56, memoryview(bytearray(3 * 56 * 56))), "\nText Recognition:", Sampling(4))
    requests = {number: layout(number) for number in range(3)} | {3: blank}
    meter = Meter()
    finished = ask(Engine(model, LIMITS, detector=detector), requests, meter)
    assert finished.keys() == requests.keys()
    alone = ask(Engine(model, LIMITS), {3: blank})
    assert finished[3] == alone[3]
    for number in range(3):
        [found] = torch.inference_mode()(detector.detect)([noise(number)])
        assert finished[number].text == detector.answer(found).text
    stage = meter.stages["layout"]
    assert (stage.items, stage.batches, stage.limit_sum) == (3, 2, 4)
    assert 0 < stage.busy_s <= meter.device_busy.total_s
    assert meter.model_flop > 3 * detector.flop_per_image > 0


@pytest.mark.slow
def test_a_batch_that_does_not_fit_the_memory_is_halved(
    model: Model, detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    detect = Detector.detect

    def with_little_memory(self: Detector, images: Sequence[Pixels]) -> Tensor:
        if len(images) > 1:
            raise torch.OutOfMemoryError
        return detect(self, images)

    expected = ask(Engine(model, LIMITS, detector=detector), {number: layout(number) for number in range(3)})
    monkeypatch.setattr(Detector, "detect", with_little_memory)
    meter = Meter()
    found = ask(Engine(model, LIMITS, detector=detector), {n: layout(n) for n in range(3)}, meter)
    # Not the probabilities: on some CPUs a batch of another size differs in the last digit.
    assert {n: each.text for n, each in found.items()} == {n: each.text for n, each in expected.items()}
    assert meter.batches_halved == {"layout": 1}


def test_values_that_are_not_finite_fail_the_page_that_has_them(detector: Detector) -> None:
    found = torch.full((20, 7), 0.7)
    found[3, 4] = torch.nan
    assert detector.answer(found).error == "the detector computed values that are not finite"


def test_an_answer_without_boxes_is_empty_and_sure(detector: Detector) -> None:
    answer = detector.answer(torch.zeros(20, 7))
    assert (answer.text, answer.mean_probability, answer.min_logprob, answer.error) == ("", 1.0, 0.0, None)


def test_an_engine_without_a_detector_says_so(model: Model) -> None:
    refused = Engine(model, LIMITS).submit(0, layout(0))
    assert refused is not None and refused.error == "this engine has no layout detector"


def test_a_stage_that_was_cleared_has_nothing_left(model: Model) -> None:
    def nothing_found(images: Sequence[Pixels]) -> Tensor:
        return torch.zeros(len(images), 20, 7)

    blank = Completion("", "stop", 0, 0, 1, 0)
    stub: Any = SimpleNamespace(detect=nothing_found, flop_per_image=1.0, answer=lambda found: blank)
    engine = Engine(model, LIMITS, detector=stub)
    for number in range(3):
        engine.submit(number, layout(number))
    engine.clear()
    assert not engine.has_work
    assert ask(engine, {7: layout(7)}).keys() == {7}


def test_layouts_are_tried_in_full_batches_again_once_others_have_fitted(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchocr.engine.batch_limit._FIRST_WAIT", 1)
    batches = []

    def full_at_first(images: Sequence[Pixels]) -> Tensor:
        batches.append(len(images))
        if len(batches) == 1:
            raise torch.OutOfMemoryError
        return torch.zeros(len(images), 20, 7)

    stub: Any = SimpleNamespace(detect=full_at_first, flop_per_image=1.0, answer=lambda _: blank)
    blank = Completion("", "stop", 0, 0, 1, 0)
    ask(Engine(model, LIMITS, detector=stub), {number: layout(number) for number in range(6)})
    assert batches == [2, 1, 1, 2, 2]


@torch.inference_mode()
def test_how_sure_it_has_to_be_changes_what_counts_and_nothing_else(
    tmp_path: Path, detector: Detector, pages: list[Pixels]
) -> None:
    folder = make_detector(tmp_path)
    unsure = Detector(folder, Device(CPU), DetectorUse(least_score=0.3))
    of_each = Detector(folder, Device(CPU), DetectorUse(least_score=0.5, least_scores={"text": 0.3}))
    num_more = num_texts = 0
    for page in pages[:4]:
        [found] = detector.detect([page])
        all_found = json.loads(unsure.answer(found).text or "[]")
        sure = json.loads(detector.answer(found).text or "[]")
        assert sure == [part for part in all_found if part[1] >= 0.5]
        assert all(score >= 0.3 for _, score, *_ in all_found)
        num_more += len(all_found) - len(sure)
        more = [part for part in all_found if part[1] >= 0.5 or part[0] == "text"]
        assert json.loads(of_each.answer(found).text or "[]") == more
        num_texts += len(more) - len(sure)
    assert num_more > num_texts > 0


def test_a_checkpoint_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"of the type 'qwen2_vl'\. With this model --layout takes PP-DocLayoutV2 or PP-DocLayoutV3"
    ):
        find_detector(str(make_checkpoint(tmp_path / "model")))


def test_what_is_found_of_a_detector_tells_its_weights_apart(tmp_path: Path) -> None:
    one, other = (find_detector(str(make_detector(tmp_path / str(seed), seed=seed))) for seed in range(2))
    assert one.fingerprint != other.fingerprint
    assert one.weight_bytes == os.path.getsize(tmp_path / "0" / "model.safetensors")
    assert find_detector(None).fingerprint == ""
    (tmp_path / "0" / "configuration.json").write_text("{}")
    _, older = fingerprints(tmp_path / "0")
    for begun, expected in ((None, one.fingerprint), (one.fingerprint, one.fingerprint), (older, older)):
        assert find_detector(str(tmp_path / "0"), begun).fingerprint == expected
