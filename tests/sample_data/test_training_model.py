"""The sample model's training: the arithmetic is transformers', the crops are batchocr's, and runs can be resumed."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, Qwen2VLForConditionalGeneration

from batchocr.data import Completion, Page
from batchocr.pages.protocol.mineru import MinerUProtocol
from sample_data.training import memory, train
from sample_data.training.batches import Batch, collate
from sample_data.training.export import checkpoint_weights, export
from sample_data.training.heads import IGNORED, heads
from sample_data.training.lessons import Plan, Stage, Teacher, load_lessons
from sample_data.training.losses import answer_losses, language_losses, vision_losses
from sample_data.training.model import ReadingModel, Shape
from sample_data.training.progress import Examiner
from sample_data.training.samples import Sampler, _forks, resized, thousandths
from sample_data.training.scan import make_page
from sample_data.training.settings import SETTINGS
from sample_data.training.train import Training
from sample_data.training.truth import TrainingPage
from sample_data.training.vocabulary import LAYOUT_PROMPT, TEXT_PROMPT, Vocabulary

pytestmark = pytest.mark.slow

VOCABULARY = Vocabulary()
TINY = Shape(
    len(VOCABULARY),
    vision_width=32,
    vision_depth=2,
    vision_heads=2,
    width=32,
    depth=3,
    num_heads=2,
    mlp_width=48,
    mrope_section=(2, 2, 4),
)
_STAGES = (Stage(math.inf, 0.6, 0.2),)
PLAN = Plan(
    200, 20, 2, 1000, 1, quartered=0.5, pool=2, pages_per_lesson=0.5, familiar=0.0, plain=0.0, texts=0.7, stages=_STAGES
)
SETTING = replace(SETTINGS["scratch"], plan=PLAN, steps=6, num_workers=0, exam_every=1000)


@pytest.fixture(scope="module")
def page() -> TrainingPage:
    return make_page(8, 1)


@pytest.fixture(scope="module")
def batch(page: TrainingPage) -> Batch:
    rng = np.random.default_rng(0)
    block = next(block for block in page.blocks if block.type == "text")
    left = float(block.places[0, 0]) - 3
    sample = Sampler(VOCABULARY).fragment(page, block, range(2), (left, 240), rng)
    assert sample is not None
    return collate([sample, sample], VOCABULARY)


def test_the_logits_are_those_of_transformers(batch: Batch, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ReadingModel(TINY, heads(VOCABULARY.first_number))
    export(model, VOCABULARY, tmp_path)
    theirs = Qwen2VLForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float32).eval()
    written = {name: tensor.float() for name, tensor in checkpoint_weights(model).items()}
    written["visual.patch_embed.proj.weight"] = written["visual.patch_embed.proj.weight"].sum(dim=(1, 2)).flatten(1)
    model.load_state_dict(written, strict=False)

    with torch.no_grad():
        seen = model(batch, model.see(batch))

        [(count, length)] = batch.runs
        input_ids = batch.token_ids.view(count, length)
        [(_, num_patches)] = batch.image_runs
        rows, columns = (batch.patch_places[:num_patches].max(dim=0).values + 1).tolist()
        logits = theirs(
            input_ids=input_ids,
            pixel_values=batch.patches().view(-1, 1, 1, 100).expand(-1, 3, 2, -1).reshape(-1, 600),
            image_grid_thw=torch.tensor([(1, rows, columns)] * count),
            mm_token_type_ids=(input_ids == VOCABULARY.image).int(),
        ).logits.flatten(0, 1)[batch.answer_index]
    assert torch.allclose(seen.logits, logits, atol=1e-4)


def test_decoding_step_by_step_says_what_one_pass_says(page: TrainingPage) -> None:
    torch.manual_seed(1)
    sample = Sampler(VOCABULARY).block(page, page.blocks[1], np.random.default_rng(0))
    batch = collate([sample], VOCABULARY)
    model = ReadingModel(TINY, heads(VOCABULARY.first_number))
    answer = model.read(batch, end=VOCABULARY.end, max_tokens=12)
    said = batch.answer_index[: len(answer) + 1]
    batch.token_ids[said[1:]] = torch.tensor(answer)
    assert model(batch, model.see(batch)).logits[: len(answer)].argmax(-1).tolist() == answer


def test_the_tokenizer_that_is_shipped_gives_the_ids_of_the_vocabulary(tmp_path: Path) -> None:
    VOCABULARY.tokenizer().save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    content = [{"type": "image"}, {"type": "text", "text": TEXT_PROMPT}]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
    )
    before, after = VOCABULARY.chat(TEXT_PROMPT)
    assert tokenizer(text)["input_ids"] == [*before, VOCABULARY.image, *after]
    for words in ("A naïve “quote” – 3 × 4° …", "<fcel>a<nl>\\frac{a}{\\alpha }", "日本"):
        ids = tokenizer(words)["input_ids"]
        assert tokenizer.decode(ids) == words == VOCABULARY.text(ids)


def test_a_crop_for_training_has_the_size_of_the_products(page: TrainingPage) -> None:
    height, width = page.image.shape
    boxes = [thousandths(block, width, height) for block in page.blocks]
    protocol = MinerUProtocol(max_new_tokens=10, penalties=False)
    reader = protocol.read(Page(Image.fromarray(page.image).convert("RGB"), 200))
    next(reader)
    lines = (
        f"<|box_start|>{x0} {y0} {x1} {y1}<|box_end|><|ref_start|>text<|ref_end|><|rotate_up|>"
        for x0, y0, x1, y1 in boxes
    )
    requests = reader.send([Completion("\n".join(lines), "stop", 1, 1, 1.0, 0.0, None)])
    for (x0, y0, x1, y1), request in zip(boxes, requests, strict=True):
        pixels = np.frombuffer(request.pixels.data, np.uint8).reshape(request.pixels.height, request.pixels.width, 3)
        left, top, right, bottom = (
            round(value / 1000 * side) for value, side in ((x0, width), (y0, height), (x1, width), (y1, height))
        )
        crop = page.image[top:bottom, left:right]
        assert np.array_equal(resized(crop), resized(pixels[..., 0]))


def test_the_labels_of_a_reading_stand_where_its_ink_is(page: TrainingPage) -> None:
    sample = Sampler(VOCABULARY).block(page, page.blocks[1], np.random.default_rng(0))
    labels = sample.labels["characters"]
    rows, columns = sample.grid
    dark = sample.image < 128
    for square, slot in zip(*np.nonzero(labels), strict=True):
        if VOCABULARY.text([labels[square, slot] - 1]).isalnum():
            x, y = square % columns * 20 + slot % 4 * 5, square // columns * 20 + slot // 4 * 10
            assert dark[max(0, y - 6) : y + 16, max(0, x - 6) : x + 11].any()
    assert rows * columns == len(labels)


def test_what_the_model_is_told_that_it_said_has_slips_in_some_samples(page: TrainingPage) -> None:
    rng, sampler = np.random.default_rng(0), Sampler(VOCABULARY)
    block = max(page.blocks, key=lambda block: len(block.tokens))
    samples = [sampler.block(page, block, rng) for _ in range(20)]
    shares = [float(((sample.history != sample.answer) & (sample.answer != IGNORED)).mean()) for sample in samples]
    assert 5 <= sum(share == 0 for share in shares) <= 15
    assert 0.02 < max(shares) < 0.12
    layout = sampler.layout(page, rng)
    is_number = layout.answer >= VOCABULARY.first_number
    off = np.abs(layout.history - layout.answer)
    assert 0 < off[is_number].max() < 20
    assert not off[~is_number].any()


def test_in_some_readings_the_model_is_told_that_it_said_something_again(page: TrainingPage) -> None:
    rng, sampler = np.random.default_rng(0), Sampler(VOCABULARY)
    block = max(page.blocks, key=lambda block: len(block.tokens))
    truth = [*VOCABULARY.ids(block.tokens), VOCABULARY.end]
    times, ends = [], []
    for _ in range(60):
        sample = sampler.block(page, block, rng)
        again = np.flatnonzero(sample.answer == IGNORED)
        assert sample.answer[sample.answer != IGNORED].tolist() == truth
        if len(again):
            history = sample.history[again].tolist()
            counts = [count for count in range(len(again), 0, -1) if history == history[: len(again) // count] * count]
            said = truth[again[0] - len(again) // counts[0] : again[0]]
            assert (np.array(history) != said * counts[0]).mean() < 0.5
            assert sample.forks[again[-1] + 1]
            assert (sample.guide[again] == IGNORED).all()
            times.append(counts[0])
            ends.append(said[-1])
    assert 8 <= len(times) <= 30
    assert min(times) == 1
    assert max(times) > 3
    words = ends.count(*VOCABULARY.ids(" "))
    assert len(ends) > words >= 3


class _KnowsAll(ReadingModel):
    def read(self, batch: Batch, *, end: int, max_tokens: int) -> list[int]:
        return [token for token in batch.answer.tolist() if token not in (IGNORED, end)]


def test_who_answers_all_makes_no_mistake_in_an_exam() -> None:
    rates = Examiner(VOCABULARY, 3)(_KnowsAll(TINY, ()))
    assert {"line 260", "text", "layout"} <= rates.keys()
    assert set(rates.values()) == {0.0}


@pytest.mark.parametrize(
    ("text", "forks"),
    [
        ("on the mat and on the moor", {8: "a", 23: "o"}),
        ("as it is", {4: "t", 7: "s"}),
    ],
)
def test_a_fork_is_where_the_same_letters_are_followed_by_others(text: str, forks: dict[int, str]) -> None:
    found = np.flatnonzero(_forks(VOCABULARY.ids(text)))
    assert {int(place): text[place] for place in found} == forks


def test_an_answer_to_the_layout_names_every_block_in_order(page: TrainingPage) -> None:
    sample = Sampler(VOCABULARY).layout(page)
    assert sample.prompt == LAYOUT_PROMPT
    lines = VOCABULARY.text(sample.answer.tolist()).removesuffix("<|im_end|>").splitlines()
    assert [line.split("<|ref_start|>")[1].split("<|ref_end|>")[0] for line in lines] == [b.type for b in page.blocks]


def test_a_layout_seen_in_quarters_is_the_same_question(page: TrainingPage) -> None:
    sampler = Sampler(VOCABULARY)
    whole = collate([sampler.layout(page)], VOCABULARY)
    quarters = collate([sampler.layout(page, in_quarters=True)], VOCABULARY)
    assert [count * length for count, length in quarters.image_runs] == [4 * 13 * 13, 2 * 4 * 13 * 12, 4 * 12 * 12]
    by_token = quarters.image_index.argsort()
    for name in ("images", "patch_places"):
        squares = getattr(quarters, name).view(25 * 25, 4, -1)[by_token]
        assert torch.equal(squares, getattr(whole, name).view(25 * 25, 4, -1))
    for name, (asked, classes) in quarters.labels.items():
        asked_in_whole, classes_in_whole = whole.labels[name]
        places = quarters.image_index[asked] - whole.image_index[0]
        assert torch.equal(places.sort().values, asked_in_whole)
        assert torch.equal(classes[places.argsort()], classes_in_whole)
    for name in ("token_ids", "positions", "answer", "guide"):
        assert torch.equal(getattr(quarters, name), getattr(whole, name))


def test_lessons_from_other_processes_depend_on_the_seed_and_the_step_alone() -> None:
    lessons = load_lessons(PLAN, seed=5, start=4, num_workers=2)
    later = load_lessons(PLAN, seed=5, start=5, num_workers=2)
    next(lessons)
    for one, other in zip(next(lessons), next(later), strict=True):
        assert torch.equal(one.images, other.images)
        assert torch.equal(one.token_ids, other.token_ids)


def test_a_few_steps_make_the_losses_smaller(tmp_path: Path) -> None:
    training = Training(replace(SETTING, warm_up=1), tmp_path, seed=0, shape=TINY)
    lesson = Teacher(PLAN, VOCABULARY).lesson(np.random.default_rng(0), [make_page(8, 2)] * 2, 1)
    first, *_, last = [sum(training.learn(lesson).values()) for _ in range(6)]
    assert last < 0.9 * first


def test_exported_weights_can_be_trained_further(tmp_path: Path) -> None:
    setting = replace(SETTINGS["refine"], plan=replace(SETTINGS["refine"].plan, pool=4), num_workers=0)
    before = ReadingModel(TINY, heads(VOCABULARY.first_number))
    export(before, VOCABULARY, tmp_path / "model")
    training = Training(setting, tmp_path, seed=0, shape=TINY)
    training.begin_with(tmp_path / "model")
    for name, parameter in training.model.named_parameters():
        assert torch.allclose(parameter, before.get_parameter(name), rtol=0.01, atol=1e-3), name


def test_the_eyes_rest_while_earlier_texts_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_NUM_TEXTS", 2)
    plan = replace(PLAN, stages=(Stage(3, 0.6, 0.2, eyes_rest=True), *_STAGES))
    training = Training(replace(SETTING, plan=plan, texts_again=1), tmp_path, seed=0, shape=TINY)
    lesson = Teacher(PLAN, VOCABULARY).lesson(np.random.default_rng(0), [make_page(8, 2)] * 2, 1)[:1]
    eyes = [parameter.clone() for parameter in training.model.visual.parameters()]
    losses = [training.learn(lesson) for _ in range(3)]
    assert ["answer/again" in found for found in losses] == [False, False, True]
    assert all(torch.equal(*pair) for pair in zip(eyes, training.model.visual.parameters(), strict=True))
    training.learn(lesson)
    assert not any(torch.equal(*pair) for pair in zip(eyes, training.model.visual.parameters(), strict=True))


def test_what_is_exported_is_the_mean_of_the_weights_of_late_steps(tmp_path: Path) -> None:
    training = Training(replace(SETTING, average_over=2), tmp_path, seed=0, shape=TINY)
    lesson = Teacher(PLAN, VOCABULARY).lesson(np.random.default_rng(0), [make_page(8, 2)] * 2, 1)
    weights = []
    for _ in range(3):
        training.learn(lesson)
        weights.append(training.model.lm_head.weight.clone())
    first, second, third = weights
    assert torch.allclose(training.average.lm_head.weight, ((first + second) / 2 + third) / 2, atol=1e-6)


def test_the_losses_are_much_the_same_in_bfloat16(batch: Batch) -> None:
    torch.manual_seed(2)
    all_heads = heads(VOCABULARY.first_number)
    model = ReadingModel(TINY, all_heads)

    def losses() -> dict[str, float]:
        vision = model.see(batch)
        found = vision_losses(model, all_heads, batch, vision) | language_losses(model, all_heads, batch, vision)
        return {name: value.item() for name, value in found.items()}

    exact = losses()
    with torch.autocast("cpu", torch.bfloat16):
        rough = losses()
    assert rough == pytest.approx(exact, rel=0.03)


def test_a_number_close_to_the_right_one_costs_less_than_a_far_one() -> None:
    right = VOCABULARY.first_number + 500

    def cost(said: int) -> float:
        logits = torch.zeros(1, len(VOCABULARY))
        logits[0, said] = 10.0
        return float(answer_losses(logits, torch.tensor([right]), torch.ones(1))["numbers"])

    assert cost(right) < cost(right + 2) < cost(right + 20)
    assert cost(right + 20) == pytest.approx(cost(VOCABULARY.end), abs=1e-3)


def test_a_run_that_was_broken_off_ends_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_FEWEST", 1)
    setting = replace(SETTING, plan=replace(PLAN, layout_every=2), rehearsed=2)
    found: dict[str, float] = {}

    def train(folder: Path, until: int, resume: bool) -> Training:
        training = Training(setting, folder, seed=3, shape=TINY)
        if resume:
            training.resume()
        lessons = training.lessons()
        while training.step < until:
            found.update(training.learn(next(lessons)))
        training.save()
        return training

    whole = train(tmp_path / "scratch", 4, resume=False)
    train(tmp_path / "parts", 2, resume=False)
    parts = train(tmp_path / "parts", 4, resume=True)
    assert "numbers/memory" in found
    for one, other in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(one, other)
