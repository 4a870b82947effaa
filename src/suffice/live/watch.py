"""Watch: decide after each round of the user's own loop, record it, then stop it or only look on."""

from __future__ import annotations

import json
import reprlib
import uuid
import warnings
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from suffice._version import VERSION
from suffice.contracts import StopPolicy
from suffice.errors import SufficeWarning, UsageError, counted
from suffice.live.loop import OWN_ID, Loop
from suffice.live.privacy import Privacy, Texts, without_secrets
from suffice.live.requirements import has_confidence
from suffice.live.watching import Budgets, Mode, Watching, Window, ended
from suffice.options import settings_of
from suffice.policies.policy_file import PolicyFile, policy_hash
from suffice.scoring import AnswerChoice
from suffice.trace.engines import as_place
from suffice.trace.loop_record import LoopRecord
from suffice.trace.parquet import run_document
from suffice.trace.rounds.records import PROPENSITY, Gold, Question
from suffice.trace.store import store_place


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCounts:
    """Counts of a watch: questions, rounds, lost ones, and failed probes and decisions.

    ``lost_questions`` counts questions with a part missing from the record.
    """

    questions: int = 0
    rounds: int = 0
    lost_rounds: int = 0
    lost_questions: int = 0
    failed_probes: int = 0
    failed_decisions: int = 0


class Watch:
    """A policy over many loops at once, in threads and asyncio tasks, with a record of their rounds.

    Parameters
    ----------
    policy
        A policy, a policy file or its path, a name such as ``fixed-3``, or a rule's text. ``None``: the watch
        only records.
    record
        The database of the record, shared by several processes: ``FILE.db``, or a folder, which holds it as
        ``record.db``. ``postgresql://USER@HOST/DATABASE`` serves several machines (extra ``postgres``).
        ``None``: no record.
    mode
        ``shadow``: the policy decides but stops nothing. ``live``: it stops loops.
    explore
        In ``live``, the share of questions, in [0, 1), that run to the full budget in spite of the policy,
        drawn by the question's id. These questions keep measuring the loss of stopping.
    max_rounds
        The full budget; it ends a loop in every mode. ``None``: in ``live`` the policy file's. In ``shadow``
        the file's budget ends no loop; one warning names the first loop that goes past it.
    budgets
        Further limits. They end a loop in every mode.
    answer
        The returned answer: ``latest``, ``majority`` (the most frequent one, without abstentions),
        ``most-confident`` (by the policy's confidence), ``highest:NAME`` or ``lowest:NAME`` (by a signal
        given to ``observe``, or one that the policy reads).
    texts
        The texts of record and spans: ``all``, or ``no-texts``: numbers in their place, and no gold answers.
        Then the record stores the signals, since nobody can compute them without texts.
    spans
        ``True``: each question that ends becomes OpenTelemetry spans, with its rounds and decisions, by the
        process's tracer provider; or that provider. A text has at most 8,000 letters there.
    durable
        Whether a recorded round also survives a power cut, and not only a kill of the process.
    run
        Entries for the record's run document, such as ``{"pipeline": "my-agent"}``. Keys, passwords and
        queries of URLs are struck.

    Raises
    ------
    UsageError
        When built: for ``explore`` outside [0, 1), in shadow, or with a policy that never stops before the
        full budget; for an unknown mode or answer choice, a policy that cannot stop a loop, a place that is
        no database.
    DataError
        For a record that is no database of live loops, or one of a newer version.
    MissingExtra
        For spans without the package ``opentelemetry-api``.

    Examples
    --------
    >>> from suffice.policies.rules.policy import Rule
    >>> watch = Watch(Rule(rule="answer_stable"), mode="live", max_rounds=5)
    >>> with watch.question("Where was Ibsen born?") as loop:
    ...     for answer in ("Oslo", "Skien", "Skien.", "Skien"):
    ...         if not loop.done:
    ...             decision = loop.observe(answer=answer)
    >>> loop.answer, len(loop.rounds), loop.stopped_by
    ('Skien.', 3, 'policy')
    """

    def __init__(
        self,
        policy: StopPolicy | PolicyFile | str | Path | None = None,
        *,
        record: str | Path | None = None,
        mode: Mode = "shadow",
        explore: float = 0.0,
        max_rounds: int | None = None,
        budgets: Budgets | None = None,
        answer: str = "latest",
        texts: Texts = "all",
        spans: Any = False,
        durable: bool = False,
        run: Mapping[str, Any] | None = None,
    ) -> None:
        if mode not in get_args(Mode):
            raise UsageError(f"no mode {mode!r}; allowed: {', '.join(get_args(Mode))}")
        share: Any = explore
        if isinstance(share, str) or not (share == 0.0 or PROPENSITY.least <= share < 1.0):
            raise UsageError(
                f"explore must be 0, or from 0.000001 to below 1, found {explore!r}; with 1 "
                'nothing would stop: write mode="shadow"'
            )
        if explore and mode == "shadow":
            raise UsageError(
                'in shadow every question runs to the full budget; give explore with mode="live" only'
            )
        self._watching = watching = Watching.of(
            policy,
            max_rounds=max_rounds,
            mode=mode,
            explore=explore,
            budgets=settings_of(Budgets, budgets),
        )
        policy, full_budget = watching.policy, watching.full_budget
        if policy is None and mode == "live":
            raise UsageError('without a policy nothing stops a loop; give one, or mode="shadow"')
        if policy is not None and not callable(getattr(policy, "fires", None)):
            raise UsageError(
                f"policy must be a policy, a policy file or its path, found {policy!r:.60}; write a rule, a "
                "name such as fixed-3, or the file's path; a policy of your own has fires(table)"
            )
        if policy is not None and policy.needs.refusal:
            raise UsageError(policy.needs.refusal)
        if explore and policy and full_budget and policy.facts.earliest >= full_budget:
            raise UsageError(
                "explore lets questions run on past the policy's stop, and this policy never stops before "
                f"the full budget of {counted(full_budget, 'round')} ({policy.facts.summary}); leave explore "
                "out, or state the loop's full budget if it is larger: max_rounds=N"
            )
        choice = AnswerChoice.parse(answer)
        if policy is not None:
            choice = choice.or_own(policy.needs.returns)
        if choice.rule == "most-confident" and (policy is None or not has_confidence(policy)):
            raise UsageError(
                'answer="most-confident" needs a policy with a confidence, and this one has none; choose '
                "by a signal of yours: answer='highest:NAME'"
            )
        place = None if record is None else store_place(record)
        watching.choice = choice
        watching.policy_hash = None if policy is None else policy_hash(policy)
        watching.privacy = Privacy.of(texts, None if record is None else as_place(record))
        if spans is not False and spans is not None:
            from suffice.live.observing import Spans

            if not callable(getattr(spans, "on", None)):  # else the service's own observer
                spans = Spans(None if spans is True else spans, watching.privacy)
            watching.observers = (spans,)
        if place is not None:
            document = self._document(answer, run or {})
            watching.writer = LoopRecord(place, document, durable=durable)
            weakref.finalize(watching, _left_behind, watching.writer)
        watching.window = Window.of(watching.budgets, watching.writer)

    @property
    def policy(self) -> StopPolicy | None:
        """The policy that decides; ``None``: the watch only records."""
        return self._watching.policy

    def _document(self, answer: str, run: Mapping[str, Any]) -> Mapping[str, Any]:
        watching, privacy = self._watching, self._watching.privacy
        watched: dict[str, Any] = {
            "mode": watching.mode,
            "explore": watching.explore,
            "answer": answer,
            "policy_hash": watching.policy_hash,
        }
        if privacy is not None:
            watched["texts"] = privacy.texts
        document = {"watch": watched, "rounds": watching.full_budget, "version": VERSION}
        try:
            document |= without_secrets(run, paths=privacy is None)
            return run_document(json.dumps(document, ensure_ascii=False), Path("run"))
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                f"run must be a JSON object, as {{'pipeline': 'my-agent'}}; found {reprlib.repr(run)}"
                f" ({error})"
            ) from error

    def question(
        self,
        text: str,
        *,
        question_id: str | None = None,
        question_type: str | None = None,
        split: str | None = None,
        gold_answers: Iterable[str] = (),
        gold_passage_ids: Iterable[str] = (),
    ) -> Loop:
        """Return the loop of one question; enter it with ``with`` or ``async with``.

        ``question_id`` is its id in the record, with a number appended if that is taken; ``None``: a new id.
        :attr:`Loop.question_id` holds it once the question is entered. No policy sees the type, split, gold
        answers and gold passage ids: they are columns of the record.

        Raises
        ------
        UsageError
            If a question with that id is running, or for an empty id.
        DataError
            If the id, the question or a gold answer is no text.
        """
        name = uuid.uuid4().hex[:20] if question_id is None else question_id
        asked = Question(id=name, text=text, type=question_type, split=split)
        if not asked.id or asked.id in self._watching.under_way:
            what = f"the question {name!r} is running already" if name else "question_id is empty"
            raise UsageError(f"{what}; {OWN_ID}")
        gold = Gold(
            answers=gold_answers,  # type: ignore[arg-type]
            passage_ids=gold_passage_ids,  # type: ignore[arg-type]
        )
        return Loop(self._watching, asked, gold, named=question_id is not None)

    def resume(self, question_id: str) -> Loop | None:
        """Return the loop of a question under way, also of one that another process left as ``stays``.

        ``None``: there is none by this policy and ``explore`` of the last week, or the record has no texts.
        """
        watching, running = self._watching, self._watching.under_way.get(question_id)
        writer = watching.writer
        if writer is None or (running is not None and writer.owns(question_id)):
            return running
        watching.under_way.pop(question_id, None)
        terms = watching.policy_hash, watching.explore or None
        record = None if watching.privacy else writer.resume(question_id, *terms)
        if record is None:
            return None
        return Loop(watching, record.question, record.gold).resume(record.rounds)

    def label(
        self,
        question_id: str,
        *,
        gold_answers: Iterable[str] = (),
        question_type: str | None = None,
        score: float | None = None,
    ) -> None:
        """Label a recorded question later, by its id in the record: :attr:`Loop.question_id`.

        ``gold_answers`` are the accepted answers; ``score`` is that of the returned answer, in [0, 1].

        Raises
        ------
        UsageError
            Without a record, or without a label; for gold answers of a record that keeps no texts.
        DataError
            For a score outside [0, 1], or answers that are no texts; for a question without a recorded
            round (column ``question_id``), and for a label that contradicts an earlier one.
        """
        writer = self._watching.writer
        if writer is None:
            raise UsageError(
                "this watch has no record, so there is nothing to label; give Watch(record=FILE.db)"
            )
        from suffice.trace.rounds.labels import Label

        label = Label(
            question_id=question_id,
            gold_answers=gold_answers,  # type: ignore[arg-type]
            question_type=question_type,
            score=score,
        )
        if label.gold_answers and self._watching.privacy is not None:
            raise UsageError(
                "the record keeps no texts, so no answer can be compared with gold_answers; label it with a "
                "score"
            )
        if not any(label.parts()):
            raise UsageError("a label needs gold_answers=[...], a question_type or a score")
        writer.label(label)

    @property
    def problem(self) -> str | None:
        """The first failure of the recording; ``None``: everything is recorded."""
        writer = self._watching.writer
        return None if writer is None else writer.problem

    @property
    def failing(self) -> bool:
        """Whether the last write to the record failed."""
        writer = self._watching.writer
        return writer is not None and writer.failing

    @property
    def closed(self) -> bool:
        """Whether the recording has ended."""
        writer = self._watching.writer
        return writer is None or writer.closed

    @property
    def counts(self) -> WatchCounts:
        """Counts of this process so far."""
        counts, writer = dict(self._watching.counts), self._watching.writer
        if writer is not None:
            counts |= {"lost_rounds": writer.lost.rounds, "lost_questions": writer.lost.questions}
        return WatchCounts(**counts)

    def close(self) -> None:
        """End the recording; running loops end as unfinished.

        The end of the process does it, too. Rounds that cannot be written by then are lost: :attr:`counts`
        counts them, and a warning says how many.
        """
        self._watching.close()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _left_behind(writer: LoopRecord) -> None:
    if not writer.closed and (said := ended(writer)):
        warnings.warn(said, SufficeWarning, stacklevel=2)
