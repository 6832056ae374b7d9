"""The questions of a run's pages, between these and the engines: what is asked, shared, lost, and asked again.

A page's batch is only how the pixels of its questions travel. Each question is asked once, whoever else has it too: an
answer goes to all pages that wait for it, even if the one that asked has lost its worker. Answers without an error are
kept, as far as there is room, and in a cache on disk if there is one. An error goes to the pages that wait, because
asking again could cost another engine; it is not kept.

What a lost engine had begun with is suspect, each page's questions as a group. A suspect group is asked alone, of an
engine that has nothing else. If that is lost too, the group is divided into its questions, each a suspect group. One
that costs an engine then is answered with an error, and after two of a page so are the page's others that still wait.
So a question is blamed only for what happens a second time while nothing else is there: an engine may also be lost by
chance. An engine that was killed from outside is no question's fault, the first four times.

A bad question among any number of pages in flight costs three engines. Each page that the first of them had begun is
asked alone once, and then each question of one page. A page with several bad questions costs four engines. A group is
not divided in halves, of which one would cost an engine each time: to start one takes longer than to ask many a
question.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from batchocr.data import Completion, failed_completion
from batchocr.processes.answer_cache import AnswerCache
from batchocr.processes.counts import Counts
from batchocr.processes.engines import EngineChannel, EngineLoss, EngineProcess, Engines
from batchocr.processes.messages import Question
from batchocr.processes.pixels import SharedBatch

_MAX_BYTES: Final = 64 << 20
"""What the answers that are kept may take: some fifty thousand blocks of text, or more short ones."""
_BYTES_EACH: Final = 600
"""What an answer takes besides its text: its digest, its numbers, its entries in two tables."""
_MAX_KILLS: Final = 5
"""How many engines that had begun with a group may be killed before the group is suspect."""
_DIVIDED: Final = 2
"""After how many losses a group is divided into its questions."""
_MAX_POISONOUS: Final = 2
"""How many questions of a page may cost an engine before the page's other questions are not tried."""
_NUMBERS: Final = count(1)
"""Numbers for what engines are asked, counted over all runs of this process: an engine may still answer what an earlier
run asked."""


@dataclass(slots=True, eq=False)
class AskingPage:
    """A page that waits for the answers to its questions."""

    task_id: int
    num_questions: int
    answers: dict[int, Completion] = field(default_factory=dict)
    """The answers that there are, by the places of their questions."""
    num_poisonous: int = 0
    """How many of the page's questions have cost an engine that had nothing else to answer."""


@dataclass(slots=True, eq=False)
class Pending:
    """A question that an engine has to answer."""

    key: str
    """The question's digest, which equal questions share; a number if nothing is shared."""
    question: Question
    waiting: list[tuple[AskingPage, int]]
    """The pages that wait for the answer, and the answer's place in each. The question was asked for the first of
    them."""


@dataclass(slots=True, eq=False)
class Group:
    """Questions of one page that are asked together."""

    page: AskingPage
    batch: SharedBatch
    """The batch with the pixels of these questions."""
    pending: list[Pending]
    losses: int = 0
    """How many engines were lost that had begun with it. After the first it is suspect, after the second divided."""
    kills: int = 0
    """How many engines that had begun with the group were killed from outside."""


class Questions:
    """Has engines answer the questions of pages. Belongs to one thread.

    The run's loop: `ask`, wait until one of `channels` has something, and `take_answers`.
    """

    def __init__(
        self, engines: Engines, cache: AnswerCache | None = None, *, shares: bool = True, max_bytes: int = _MAX_BYTES
    ) -> None:
        """engines: loaded, and asked by nobody else. cache: only if it shares; closed by `close`. shares: whether
        questions that are the same are asked once. max_bytes: how much memory the kept answers may take."""
        self.counts = Counts()
        """Counts of the questions that could be shared, and of what sharing saved."""
        self._engines = engines
        self._cache = cache
        self._shares = shares
        self._kept = _Kept(max_bytes)
        self._pending: dict[str, Pending] = {}
        self._waiting: deque[Group] = deque()
        self._suspects: deque[Group] = deque()
        self._asked: dict[int, Group] = {}
        """What the engines have, by the numbers under which they were asked."""
        self._done: list[tuple[int, tuple[Completion, ...]]] = []

    @property
    def channels(self) -> list[EngineChannel]:
        """The channels of the engines, to wait for."""
        return self._engines.channels

    def close(self) -> None:
        """Drop what is not answered yet, with its pixels, and close the cache."""
        for groups in (self._waiting, self._suspects, self._asked):
            groups.clear()
        if self._cache is not None:
            self._cache.close()

    def ask(self, task_id: int, batch: SharedBatch) -> None:
        """Have a page's questions answered. task_id: what the answers come back under, all together; never the same for
        two batches at once. Never blocks."""
        questions = batch.message.questions
        page = AskingPage(task_id, len(questions))
        group = Group(page, batch, [])
        unknown = {each.digest for each in questions if self._kept.find(each.digest) is None}.difference(self._pending)
        cached = {} if self._cache is None else self._cache.find(list(unknown))
        self.counts.asked += len(questions) if self._shares else 0
        for place, question in enumerate(questions):
            key = question.digest if self._shares else str(next(_NUMBERS))
            if (answer := self._kept.find(key)) is not None:
                self.counts.from_run += 1
                self._answer_from_memory(page, place, answer)
            elif (answer := cached.get(key)) is not None:
                self.counts.from_cache += 1
                self._kept.put(key, answer)
                self._answer_from_memory(page, place, answer)
            elif key in self._pending:
                self._pending[key].waiting.append((page, place))
            else:
                self._pending[key] = Pending(key, question, [(page, place)])
                group.pending.append(self._pending[key])
        if group.pending:
            self._waiting.append(group)
            self._assign()

    def take_answers(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The pages whose questions have been answered since the last call: task_id, and the answers in the order of
        the questions. Replaces engines that are lost. Raises EngineError if there is none any more."""
        for answers in self._engines.receive():
            group = self._asked.pop(answers.task_id)
            for pending, completion in zip(group.pending, answers.completions, strict=True):
                self._answer(pending, completion)
        for engine, loss in self._engines.replace_lost():
            self._take_back(engine, loss)
        self._assign()
        if self._cache is not None:
            self._cache.write_if_due()
        done, self._done = self._done, []
        return done

    # Answers

    def _answer(self, pending: Pending, completion: Completion) -> None:
        """Give an engine's answer to all that wait for it, and keep it for others unless it is an error."""
        del self._pending[pending.key]
        asking, *others = pending.waiting
        self._give(*asking, completion)
        for page, place in others:
            self.counts.from_run += 1
            self._answer_from_memory(page, place, completion)
        if self._shares and completion.error is None:
            self._kept.put(pending.key, completion)
            if self._cache is not None:
                self._cache.put(pending.key, completion)

    def _answer_from_memory(self, page: AskingPage, place: int, completion: Completion) -> None:
        """Give an answer that is known or was asked for another page: no engine is asked."""
        self.counts.saved_image_tokens += completion.image_tokens
        self.counts.saved_output_tokens += completion.output_tokens
        self._give(page, place, completion)

    def _give(self, page: AskingPage, place: int, completion: Completion) -> None:
        page.answers[place] = completion
        if len(page.answers) == page.num_questions:
            self._done.append((page.task_id, tuple(page.answers[each] for each in range(page.num_questions))))

    # Engines

    def _assign(self) -> None:
        """Give out what waits, to the engines with the least to do. A suspect group goes to one that gets nothing more
        until it is idle: one whose device has proved that it works, since its last loss too if others wait."""
        free = [engine for engine in self._engines.able if not self._has_suspect(engine)]
        fit = [each for each in free if self._engines.is_trusted(each) and not (each.use.in_a_row and self._waiting)]
        if self._suspects and fit:
            free.remove(fit[0])
            if not fit[0].asked:
                self._ask(fit[0], self._suspects.popleft())
        while self._waiting and (free := [engine for engine in self._engines.able if engine in free]):
            self._ask(free[0], self._waiting.popleft())

    def _has_suspect(self, engine: EngineProcess) -> bool:
        """Whether all that the engine has is a suspect group."""
        return len(engine.asked) == 1 and self._asked[next(iter(engine.asked))].losses > 0

    def _ask(self, engine: EngineProcess, group: Group) -> None:
        number = next(_NUMBERS)
        self._asked[number] = group
        engine.ask(number, group.batch, [pending.question for pending in group.pending])

    def _take_back(self, engine: EngineProcess, loss: EngineLoss) -> None:
        """Queue again what a lost engine had, and narrow down which question it was lost with. One that has not said
        what it has begun with may have begun with all."""
        begun = engine.begun or set(engine.asked)
        for number in reversed(engine.asked):
            group = self._asked.pop(number)
            if number in begun and loss.killed:
                group.kills += 1
            if number not in begun or (loss.killed and group.kills < _MAX_KILLS):
                (self._suspects if group.losses else self._waiting).appendleft(group)
                continue
            group.losses += 1
            if group.losses < _DIVIDED:
                self._suspects.append(group)
            elif group.losses > _DIVIDED and self._engines.is_trusted(engine):
                self._fail(group, loss.message)
            else:
                self._suspects.extend(replace(group, pending=[each]) for each in group.pending)

    def _fail(self, group: Group, why: str) -> None:
        """Answer a single question with an error; from the second of a page on, also its other suspects."""
        failed = [group]
        group.page.num_poisonous += 1
        if group.page.num_poisonous >= _MAX_POISONOUS:
            failed += [other for other in self._suspects if other.page is group.page]
            self._suspects = deque(other for other in self._suspects if other not in failed)
        for pending in [pending for each in failed for pending in each.pending]:
            self._answer(pending, failed_completion(f"the engine failed on it: {why}"))


class _Kept:
    """Answers by their digests. When they take too much memory, the least recently used is removed first."""

    def __init__(self, max_bytes: int) -> None:
        self._answers: OrderedDict[str, Completion] = OrderedDict()
        self._bytes_left = max_bytes

    def find(self, digest: str) -> Completion | None:
        answer = self._answers.get(digest)
        if answer is not None:
            self._answers.move_to_end(digest)
        return answer

    def put(self, digest: str, answer: Completion) -> None:
        """Keep an answer whose digest is not kept yet."""
        self._answers[digest] = answer
        self._bytes_left -= _num_bytes(answer)
        while self._bytes_left < 0:
            _, oldest = self._answers.popitem(last=False)
            self._bytes_left += _num_bytes(oldest)


def _num_bytes(answer: Completion) -> int:
    return _BYTES_EACH + sys.getsizeof(answer.text)
