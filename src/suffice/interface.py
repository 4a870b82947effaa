"""The functions of the package: ``suffice.read``, ``suffice.replay``, ``suffice.choose`` and so on.

Each takes a record (or its path) and keyword arguments with the names of the command line. The settings
classes document them in detail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from suffice.contracts import ChatModel, Encoder, Retriever, StopPolicy
    from suffice.costs.usage import CostModel
    from suffice.evaluation.choose.choice import Choice
    from suffice.evaluation.choose.search import SearchResult
    from suffice.evaluation.diagnose.diagnosis import Diagnosis
    from suffice.evaluation.look import Look
    from suffice.evaluation.replay.named_policies import Wanted
    from suffice.evaluation.replay.results import ReplayResult
    from suffice.evaluation.settings import Correction, Family, Form, LossName
    from suffice.live.answering import Answered
    from suffice.live.watching import Budgets
    from suffice.measures.measures import Traces
    from suffice.policies.method import FitRun, Preset
    from suffice.retrieval.retrievers import Retrieval
    from suffice.scoring import F1Kind
    from suffice.trace.rounds.records import Passage, QuestionRecord
    from suffice.trace.rounds.trace_set import TraceSet


_KEYWORDS = {"f1_kind": "f1", "grid": "threshold_grid", "eval_split": "split", "choose": "answer"}
"""The keyword of a settings field, where no keyword has its name."""
_Settings = TypeVar("_Settings")


def _settings(kind: type[_Settings], stated: Mapping[str, Any]) -> _Settings:
    """Return the settings that keyword arguments state; ``None`` leaves a field at its default."""
    values = {}
    for name in (field.name for field in fields(kind)):  # type: ignore[arg-type]  # a dataclass
        value = stated.get(name, stated.get(_KEYWORDS.get(name, "")))
        if value is not None:
            values[name] = value
    return kind(**values)


def look(
    *places: str | Path,
    format: str | None = None,  # noqa: A002
    texts: bool = False,
) -> Look:
    """Say what logs show without labels: costs, ends, repeated calls, and what a cap would have saved.

    ``places`` are files and folders: logs that ``traces import`` reads, and records. ``format`` is that of
    every log; ``None``: recognized file by file. ``texts``: also name the calls repeated most.

    Raises
    ------
    UsageError
        If no place is named, or for an unknown format.
    DataError
        If there is no log, or none with a round. Logs that are read in part are counted in ``problems``.

    Examples
    --------
    >>> import suffice
    >>> found = suffice.look("example")
    >>> found.runs, found.rounds, [cap["rounds"] for cap in found.caps]
    (250, 1250, [4, 3])
    """
    from suffice.datasets.logs import find_logs
    from suffice.evaluation.look import look_at, shell_word

    logs, notes = find_logs(places, format)
    return look_at(logs, notes, [shell_word(str(one)) for one in places], texts=texts)


def read(*places: str | Path, skip_invalid: bool = False) -> TraceSet:
    """Read a record, or pool several into one.

    Parameters
    ----------
    places
        Each a Parquet file, a directory of them, a store of live loops (``live.db``), the address of a
        database (``postgresql://...``), or ``"example"``: the record that comes with suffice.
    skip_invalid
        Skip unreadable files and questions with an invalid row, instead of raising. They are
        reported in ``TraceSet.skipped``.

    Raises
    ------
    DataError
        Names file, row and column of the first problem.
    UsageError
        If no place is named, or if the places hold records of different loops.

    Warns
    -----
    SufficeWarning
        If a column may not mean what its name says.

    Examples
    --------
    >>> import suffice
    >>> suffice.read("example")
    <TraceSet example: questions 250, rounds 1,250, eval 150, tune 100>
    """
    from suffice.trace.rounds.reader import pool_traces, read_traces

    return pool_traces([read_traces(place, skip_invalid=skip_invalid) for place in places])


def write(
    records: Iterable[QuestionRecord] | TraceSet,
    path: str | Path,
    *,
    run: Mapping[str, Any] | None = None,
) -> None:
    """Write questions with their rounds as a record.

    Parameters
    ----------
    records
        At least one question, each with at least one round; or what :func:`read` returned, or a part of it.
    path
        A ``.parquet`` file, which is replaced, or a directory, which gets a new file.
    run
        The loop's settings: model, prompt, retriever. The file keeps them. ``None``: those of what was read.

    Raises
    ------
    DataError
        If :func:`read` would refuse a question; names question, round and column.
    UsageError
        If the directory holds one of the questions already; then nothing is written.
    """
    from suffice.trace.rounds.writer import write_traces

    write_traces(records, path, run=run)


def replay(
    record: Traces,
    policies: Wanted | Sequence[Wanted] = (),
    *,
    rules: str | Sequence[str] = (),
    split: str | None = None,
    baseline: str | None = None,
    metric: str | None = None,
    f1: F1Kind = "hotpotqa",
    cost: str | None = None,
    cost_model: CostModel | None = None,
    answer: str = "latest",
    fit_on: Traces | None = None,
    strict: bool = False,
    resamples: int = 1000,
    seed: int = 42,
) -> ReplayResult:
    """Replay policies on recorded rounds and compare them, with paired intervals.

    Parameters
    ----------
    record
        A record, or its path.
    policies
        Names (``"tasr"``, ``"fixed-3"``, ``"oracle-f1"``), paths of policy files, or policies. Without
        policies and rules: every fixed number of rounds, the usual methods and the oracles.
    rules
        Rules as text, such as ``"answer_stable and overlap > 0.2"``.
    split
        The split to score; ``None``: ``eval`` if there is one, else all questions.
    baseline
        The policy to compare with; ``None``: all rounds of the record.
    metric
        ``em``, ``f1``, ``acc``, ``score`` or ``agreement``; a column or signal of your own; or
        ``"module:function"``, which takes an answer and the list of gold answers; each in [0, 1]. ``None``:
        ``f1`` if there are gold answers, else ``score`` if there are scores, else ``agreement``.
    f1
        The definition of F1: ``hotpotqa`` or ``squad``.
    cost, cost_model
        The cost that compares policies, and the prices.
    answer
        The scored answer among the rounds up to the stop: ``latest``, ``majority``, ``most-confident``,
        ``highest:NAME`` or ``lowest:NAME`` of a signal.
    fit_on
        Another record; policies are fitted on its split ``tune``.
    strict
        Raise if a policy cannot run; else it is left out, and the notes say why.
    resamples, seed
        Number of resamples and seed of the paired bootstrap over questions.

    Raises
    ------
    UsageError
        For an unknown policy, split, metric or cost, and if no policy can run.
    DataError
        For a record that cannot be read.

    Examples
    --------
    >>> import suffice
    >>> compared = suffice.replay("example", ["fixed-5"], rules="answer_repeats")
    >>> [round(policy.mean_rounds, 2) for policy in compared.policies]
    [5.0, 2.93]
    """
    from suffice.evaluation.replay.compare import compare
    from suffice.evaluation.settings import ComparisonSettings

    return compare(record, _settings(ComparisonSettings, locals())).result


def choose(
    record: Traces,
    *,
    max_loss: float | str | None = None,
    confidence: float = 0.95,
    loss: LossName = "signed",
    max_cost: float | None = None,
    max_wrong_stops: float | str | None = None,
    cost_per_error: float | None = None,
    min_rounds: int = 1,
    policies: Wanted | Sequence[Wanted] = (),
    family: Family = "all",
    rule: str | None = None,
    grid: Sequence[float] | None = None,
    correction: Correction = "fixed-sequence",
    signals: str | Sequence[str] | None = None,
    max_signals: int = 2,
    path: str | None = None,
    levels: Sequence[float] | None = None,
    anytime: bool = False,
    answer: str = "latest",
    metric: str | None = None,
    f1: F1Kind = "hotpotqa",
    cost: str | None = None,
    cost_model: CostModel | None = None,
    tune_split: str = "tune",
    split: str = "eval",
    resamples: int = 1000,
    seed: int = 42,
) -> Choice:
    """Choose the best policy for a record, with its saving and a proven bound on its loss.

    Parameters
    ----------
    record
        A record of one loop at its full budget, or its path.
    max_loss
        Greatest mean loss against the full budget, in (0, 1), as ``0.02`` or ``"2%"``. ``None``: bounds of 1,
        2, 3, 5 and 10 points are tested together.
    confidence
        Confidence level of all promises together, in (0, 1).
    loss
        ``signed``: full budget minus policy; ``drop``: its positive part; ``wrong-stop``: 1 if the full
        budget is right and the policy is wrong.
    max_cost, cost_per_error
        Other objectives: the best score at this cost per question, or the least sum of cost and errors.
    max_wrong_stops
        Greatest share of questions with a wrong answer where the full budget is right; also promised.
    min_rounds
        The first round at which a policy may stop.
    policies
        Further candidates: names, policy files or policies.
    family, rule, grid, correction
        The candidates: ``all``, ``rule``, ``thresholds`` (one rule, ``?`` stands for each number of the
        grid) or ``fixed``; and the correction for many tests.
    signals, max_signals
        Signals of the rules, and the most that one rule combines.
    path, levels
        Your own path: a rule with ``x`` for a number, and its numbers from safe to bold.
    anytime
        Bet on questions in the order of recording (column ``time``). The promise then holds although you
        choose again whenever the record has grown. Fitted candidates prove nothing.
    answer, metric, f1, cost, cost_model, resamples, seed
        As for :func:`replay`.
    tune_split, split
        The split that fits methods, and the split that ranks and tests them.

    Raises
    ------
    UsageError
        For several loops in one record, a record of one round, too few labeled questions, an unknown cost.
    DataError
        For a record that cannot be read.

    Examples
    --------
    >>> import suffice
    >>> choice = suffice.choose("example", max_loss=0.05)
    >>> choice.save("policy.json")  # doctest: +SKIP
    """
    from suffice.evaluation.choose.procedure import choose as chosen
    from suffice.evaluation.settings import ChoiceSettings

    grid, levels = (None if one is None else tuple(one) for one in (grid, levels))
    return chosen(record, _settings(ChoiceSettings, locals()))


def search(
    record: Traces,
    signals: str | Sequence[str],
    *,
    form: Form = "or",
    threshold_grid: int | Literal["quantiles"] = 40,
    max_cost: float | None = None,
    objective: str | None = None,
    baseline: str | None = None,
    answer: str = "latest",
    metric: str | None = None,
    f1: F1Kind = "hotpotqa",
    cost: str | None = None,
    cost_model: CostModel | None = None,
    tune_split: str = "tune",
    split: str = "eval",
    resamples: int = 1000,
    seed: int = 42,
) -> SearchResult:
    """Evaluate every rule of a form, with intervals that hold for all rules together.

    Parameters
    ----------
    record
        A labeled record with both splits, or its path.
    signals
        Names, as a list or separated by commas; a rule uses each at most once.
    form
        ``or``, ``and``: of every subset; ``vote``: k of every subset; ``dnf``: OR of ANDs.
    threshold_grid
        Number of evenly spaced thresholds per signal, or ``"quantiles"`` of its values on the tune split.
    max_cost
        Greatest mean cost per question on the tune split.
    objective
        The objective of thresholds and order: ``f1``, ``em`` or ``gain-at-cost``; ``None``: the metric.
    baseline, answer, metric, f1, cost, cost_model, resamples, seed
        As for :func:`replay`.
    tune_split, split
        The split that chooses thresholds, and the split that scores rules.

    Raises
    ------
    UsageError
        For an unknown signal, a constant one, an unlabeled split, an unknown cost.
    DataError
        For a missing split.
    """
    from suffice.evaluation.choose.search import search as searched
    from suffice.evaluation.settings import SearchSettings

    return searched(record, _settings(SearchSettings, locals()))


def diagnose(
    record: Traces,
    policies: Wanted | Sequence[Wanted] = (),
    *,
    rules: str | Sequence[str] = (),
    signals: str | Sequence[str] | None = None,
    confidence: str | None = None,
    threshold: float | None = None,
    f1: F1Kind = "hotpotqa",
    tune_split: str = "tune",
    split: str = "eval",
    resamples: int = 1000,
    seed: int = 42,
) -> Diagnosis:
    """Measure how well each signal separates right answers from wrong ones.

    Parameters
    ----------
    record
        A labeled record, or its path.
    policies, rules
        Policies to break down by question type and confidence; empty: every fixed number of rounds.
    signals
        Names, as a list or separated by commas; ``None``: every signal with a value.
    confidence, threshold
        The signal that serves as a policy's confidence at its stop, and where to divide it; ``None``: the
        policy's own, and its median.
    f1, resamples, seed
        As for :func:`replay`.
    tune_split, split
        The split that fits calibration maps, and the split that scores them.

    Raises
    ------
    UsageError
        For an unknown signal or policy, and for a signal that the record does not give.
    """
    from suffice.evaluation.diagnose.diagnosis import diagnosis
    from suffice.evaluation.settings import DiagnosisSettings

    return diagnosis(record, _settings(DiagnosisSettings, locals()))


def fit(
    method: str,
    record: Traces,
    *,
    preset: Preset = "corrected",
    split: str | None = None,
    run: FitRun | None = None,
    **options: Any,
) -> StopPolicy:
    """Fit a method on a record.

    Parameters
    ----------
    method
        ``tasr``, ``ab-rag``, ``stop-rag``, ``micp``, ``gate``, another package's method, or ``rule`` with
        the rule's text as ``rule=``.
    record
        A labeled record, or its path.
    preset
        ``corrected``, or ``published``: exactly as in the paper.
    split
        The split to fit on; ``None``: ``tune``.
    run
        Progress reports of a long training.
    options
        Options of the method, by their names in ``suffice fit METHOD --help``.

    Raises
    ------
    UsageError
        For an unknown method or option, and a missing or unlabeled split.

    Examples
    --------
    >>> import suffice
    >>> suffice.fit("rule", "example", rule="answer_repeats").kind
    'rule'
    """
    from suffice.policies.registry import fit_method

    return fit_method(method, record, preset, split, run=run, **options)


def ask(
    question: str,
    corpus: str | Path | Sequence[Passage] | Retriever,
    model: ChatModel | str | None = None,
    *,
    llm: str = "embedded",
    policy: StopPolicy | str | Path | None = None,
    pipeline: str | None = None,
    rounds: int | None = None,
    samples: int | None = None,
    budgets: Budgets | None = None,
    answer: str = "latest",
    decline_below: float | None = None,
    encoder: Encoder | None = None,
    retrieval: Retrieval | None = None,
    seed: int = 42,
    **loop: Any,
) -> Answered:
    """Answer a question over passages, and stop by the policy.

    Parameters
    ----------
    question
        The question.
    corpus
        A file or folder of txt, md and jsonl files, passages, or a retriever.
    model, llm
        A chat model; or its name, with ``llm`` as ``embedded`` or as the base URL of a server that speaks
        OpenAI's API.
    policy
        A policy, a policy file, ``fixed-K``, the name of a method that needs no fitting, or a rule's text.
        ``None``: the usual rule.
    pipeline, rounds, samples, seed
        The loop, its budget in rounds, and the sampled answers per round; ``None``: as the policy needs.
    budgets
        Limits in addition to the policy.
    answer
        The returned answer, as for :func:`replay`.
    decline_below
        A confidence in [0, 1]; below it no answer is returned.
    encoder, retrieval
        The encoder, if the policy needs one, and the search settings.
    loop
        Further settings of the loop, such as ``prompt``.

    Raises
    ------
    UsageError
        Before any model call: for a policy that must be fitted first, or that needs inputs that this loop
        does not give.
    BackendError, DataError
        If the model or the retriever raises them.

    Examples
    --------
    >>> import suffice
    >>> from suffice.testing.models import ScriptedModel
    >>> shelf = [suffice.Passage(id="a", title="Oslo", text="Oslo is the capital of Norway.")]
    >>> model = ScriptedModel(["Answer: Oslo"])
    >>> suffice.ask("What is the capital of Norway?", shelf, model, policy="fixed-1").answer
    'Oslo'
    """
    from suffice.live.answering import AskSettings
    from suffice.live.answering import ask as answered
    from suffice.llm.connect import connect
    from suffice.retrieval.corpus import read_corpus

    passages = read_corpus(corpus).passages if isinstance(corpus, str | Path) else corpus
    if model is None or isinstance(model, str):
        model = connect(llm, model)
    settings = _settings(AskSettings, locals())
    return answered(question, passages, model, policy=policy, settings=settings)
