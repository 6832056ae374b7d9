"""The rounds that engines have to answer: which questions are asked next, and in which company once one was lost.

What a lost engine had not answered is asked again. The rounds that it had begun with are suspects, unless somebody
killed it: they are asked together, of an engine that does nothing else; if that is lost as well, in two halves, and so
on, and of the last round one question after the other. A question that takes an engine down alone is answered with an
error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from batchocr.data import Completion, failed_completion
from batchocr.wire.pixels import SharedRound

_KILLS_TO_SUSPECT = 3
_MAX_KILLS = 5
"""An engine that is killed is somebody's doing, or the system's for lack of memory, which others may have taken. A
round that was there so often is a suspect nevertheless; and to blame, if it was alone the last time."""
_MAX_CULPRITS = 2
"""If so many questions of a round have taken an engine down, its others are not tried."""
_QUESTION_WORK: Final = 100
"""What a question takes besides its image, in image tokens."""
_PIXELS_PER_TOKEN: Final = 28 * 28


@dataclass(slots=True, eq=False)
class _Asked:
    """A round. key: what the caller calls it. answers: to its questions that are asked, by their positions. kills:
    killed engines that had begun with it. culprits: its questions that have taken an engine down."""

    key: int
    round: SharedRound
    answers: dict[int, Completion | None]
    kills: int = 0
    culprits: int = 0


@dataclass(slots=True, eq=False)
class Part:
    """Questions of a round, by their positions, that are asked together."""

    asked: _Asked
    positions: list[int]

    @property
    def round(self) -> SharedRound:
        return self.asked.round

    @property
    def work(self) -> float:
        """How much they take, roughly, in tokens: text grows with the area that it covers."""
        questions = [self.round.message.questions[position] for position in self.positions]
        sizes = [question.resize_to or (question.height, question.width) for question in questions]
        return sum(_QUESTION_WORK + height * width / _PIXELS_PER_TOKEN for height, width in sizes)


@dataclass(slots=True, eq=False)
class Group:
    """Parts, each of another round, of which one may be dangerous. lost_on: the device on which the last engine with
    them was lost."""

    parts: list[Part]
    lost_on: object

    def divided(self) -> list[Group]:
        """Two groups with half of the rounds each; of a single round, one for each question."""
        if len(self.parts) > 1:
            middle = len(self.parts) // 2
            return [Group(half, self.lost_on) for half in (self.parts[:middle], self.parts[middle:])]
        [part] = self.parts
        return [Group([Part(part.asked, [position])], self.lost_on) for position in part.positions]

    @property
    def is_single(self) -> bool:
        return len(self.parts) == 1 and len(self.parts[0].positions) == 1


class Rounds:
    """Those that are not answered yet. waiting: above suspicion, to be asked. suspects: to be asked, each group of an
    engine that has nothing else."""

    def __init__(self) -> None:
        self.waiting: deque[Part] = deque()
        self.suspects: deque[Group] = deque()
        self._done: list[tuple[int, tuple[Completion, ...]]] = []

    def add(self, key: int, round: SharedRound, positions: Sequence[int]) -> None:
        """key: what it comes back under, with the answers to all questions at these positions, in this order."""
        self.waiting.append(Part(_Asked(key, round, dict.fromkeys(positions)), list(positions)))

    def take_done(self) -> list[tuple[int, tuple[Completion, ...]]]:
        """The rounds that have been answered since the last call."""
        done, self._done = self._done, []
        return done

    def drop(self) -> None:
        """Forget all."""
        self.waiting.clear()
        self.suspects.clear()
        self._done.clear()

    def answer(self, part: Part, completions: Sequence[Completion]) -> None:
        """Note the answers to a part."""
        asked = part.asked
        for position, completion in zip(part.positions, completions, strict=True):
            asked.answers[position] = completion
        answers = tuple(answer for answer in asked.answers.values() if answer is not None)
        if len(answers) == len(asked.answers):
            self._done.append((asked.key, answers))

    def lose(
        self,
        begun: Sequence[Part],
        others: Sequence[Part],
        group: Group | None,
        *,
        on: object,
        killed: bool,
        may_blame: bool,
        why: str,
    ) -> bool:
        """Queue what an engine had that was lost; returns whether a question was found to be to blame.

        begun: what it had begun with, as far as it has said so. group: the suspects that it had, if any. on: the
        device. killed: by somebody, or by the system. may_blame: whether it is hardly the device's fault. why: in
        words.
        """
        if not begun:
            begun, others = others, ()
        for part in begun:
            part.asked.kills += killed
        if group is not None:
            self.suspects.extend(Group([part], on) for part in others)
            return self._divide(Group(list(begun), on), killed=killed, may_blame=may_blame, why=why)
        suspects = [part for part in begun if not killed or part.asked.kills >= _KILLS_TO_SUSPECT]
        if suspects:
            self.suspects.append(Group(suspects, on))
        # They were asked before those that are waiting.
        self.waiting.extendleft(reversed([part for part in (*begun, *others) if part not in suspects]))
        return False

    def _divide(self, group: Group, *, killed: bool, may_blame: bool, why: str) -> bool:
        """Queue what a group is divided into that has cost an engine, behind others; or end what was alone. Returns
        whether that was so."""
        if not group.parts:
            return False
        if not group.is_single:
            self.suspects.extend(group.divided())
            return False
        [part] = group.parts
        if not may_blame or (killed and part.asked.kills < _MAX_KILLS):
            self.suspects.append(group)
            return False
        part.asked.culprits += 1
        error = failed_completion(f"the engine failed on it: {why}")
        self.answer(part, [error])
        if part.asked.culprits >= _MAX_CULPRITS:
            self._fail_suspects_of(part.asked, error)
        return True

    def _fail_suspects_of(self, asked: _Asked, error: Completion) -> None:
        """Answer the questions of a round that are still to be asked; those that are being asked may be well."""
        for group in list(self.suspects):
            for part in [part for part in group.parts if part.asked is asked]:
                group.parts.remove(part)
                self.answer(part, [error] * len(part.positions))
            if not group.parts:
                self.suspects.remove(group)
