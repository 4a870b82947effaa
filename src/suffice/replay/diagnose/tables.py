"""A diagnosis in tables: signals, policies by question type, confidences, calibrators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from suffice.numbers.auroc import Use
from suffice.results.formats import UNKNOWN, count, counted
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Kind, Table, Tone, Value

if TYPE_CHECKING:
    from suffice.replay.diagnose.calibrator_study import CalibratorScore, CalibratorStudy
    from suffice.replay.diagnose.diagnosis import Diagnosis, TypeBreakdown
    from suffice.replay.diagnose.selective import SelectiveResult
    from suffice.replay.diagnose.signal_diagnostics import Diagnostics, Part

_MOST_IN_DETAIL = 3  # signals whose means by round are shown
_NAME_WIDTH = 24
_SIGNAL = Column(name="signal", most=_NAME_WIDTH)
_POLICY = Column(name="policy", most=_NAME_WIDTH)
_FIRST = "(the first)"
_USE = Column(name="use")
_TONES: Mapping[Use, Tone] = MappingProxyType({"useful": "good", "misleading": "bad"})


def diagnosis_tables(diagnosis: Diagnosis) -> Iterator[Table]:
    """Every table, then what the figures are and the notes."""
    yield from diagnosis.signals.tables()
    labels = diagnosis.replayed.labels
    if any(breakdown.type is not None for breakdown in diagnosis.types):
        yield _with_labels(type_table(diagnosis.types, diagnosis.replayed.baseline), labels)
    for table in selective_tables(diagnosis.selective):
        yield _with_labels(table, labels)
    if diagnosis.calibrators is not None:
        yield from calibrator_tables(diagnosis.calibrators)
    else:
        why = f"Calibrators are not compared: {diagnosis.no_calibrators or ''}"
        yield Table(name="calibrators", title=why)
    yield Table(name="notes", notes=[f"Note: {note}" for note in diagnosis.notes])


def _with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    """A table of policies by name with what tables call them."""
    place = [column.name for column in table.columns].index("policy")
    rows = [
        [*row[:place], labels.get(str(row[place]), row[place]), *row[place + 1 :]]
        for row in table.rows
    ]
    return replace(table, rows=rows)


# --- signals ----------------------------------------------------------------------------------------
def signal_tables(diagnostics: Diagnostics) -> Iterator[Table]:
    """AUROC and d of every signal, by round, by type and by value, and what speaks against it."""
    if not diagnostics.signals:
        yield Table(name="signals", title="No signal is defined in these traces.")
        return
    yield _areas(diagnostics)
    yield _distances(diagnostics)
    yield _pearson(diagnostics)
    for part in diagnostics.parts:
        yield _by_round(diagnostics, part)
    if len(diagnostics.signals) <= _MOST_IN_DETAIL:
        yield from _in_detail(diagnostics)
    yield from _concentrations(diagnostics)
    yield from _margins(diagnostics)
    yield from _wrong_and_stable(diagnostics)
    yield from (
        _correlated(part) for part in diagnostics.parts[-1:] if len(part.correlations.signals) > 1
    )
    yield from _by_type(diagnostics)
    yield from _flags(diagnostics)


def _estimate(name: str, head: str, *, signed: bool = False) -> Column:
    return Column(name=name, kind="number", digits=2, interval=True, signed=signed, head=head)


def _areas(diagnostics: Diagnostics) -> Table:
    parts = [part.name for part in diagnostics.parts]
    drifts = len(parts) > 1
    rows: list[list[Value]] = [
        [
            *(signal.name, "low" if signal.direction == "low" else None, _use(signal.use)),
            *(signal.parts[part].pooled.auroc for part in parts),
            *([signal.drift_auroc] if drifts else ()),
            *(signal.parts[part].defined for part in parts),
        ]
        for signal in diagnostics.signals
    ]
    columns = [
        _SIGNAL,
        Column(name="direction", head=""),
        _USE,
        *(_estimate(f"{part}: auroc", f"AUROC {part}") for part in parts),
        *([replace(_estimate("drift", "drift", signed=True), drop=1)] if drifts else ()),
        *(replace(_defined(f"{part}: defined", f"% def.\n{part}"), drop=2) for part in parts),
    ]
    notes = (
        "AUROC of each signal against exact match, all rounds pooled (0.5: no better than chance). "
        "low: low values speak for stopping, and AUROC is that of the negated signal. Useful: the interval "
        f"on {parts[-1]} lies above 0.5; uninformative: it holds 0.5. Each interval counts one signal alone: "
        "of many, a few lie above by chance.",
        _figures(diagnostics),
    )
    title = f"What are the signals worth here? {diagnostics.verdict}"
    return Table(name="signals", title=title, columns=columns, rows=rows, notes=notes)


def _use(use: Use) -> Cell:
    shown = "" if use == "unknown" else use
    return Cell(use, shown, _TONES.get(use))


def _defined(name: str, head: str) -> Column:
    return Column(name=name, kind="percent", digits=0, head=head)


def _figures(diagnostics: Diagnostics) -> str:
    parts = "; ".join(
        f"{part.name}: {counted(part.questions, 'question')}, {count(part.labelled)} with gold answers, "
        f"{counted(part.rounds, 'round')}"
        for part in diagnostics.parts
    )
    names = [part.name for part in diagnostics.parts]
    drift = f"drift: {names[1]} minus {names[0]}. " if len(names) > 1 else ""
    return (
        f"{parts}. Brackets: 95% intervals of {diagnostics.resamples} {diagnostics.draws} (seed "
        f"{diagnostics.seed}). {drift}{UNKNOWN}: undefined; --json says why."
    )


def _distances(diagnostics: Diagnostics) -> Table:
    parts = [part.name for part in diagnostics.parts]
    drifts = len(parts) > 1
    rows: list[list[Value]] = [
        [
            signal.name,
            *(signal.parts[part].pooled.d_signed for part in parts),
            *([signal.drift_d] if drifts else ()),
        ]
        for signal in diagnostics.signals
    ]
    columns = [
        _SIGNAL,
        *(_estimate(f"{part}: d", f"d {part}", signed=True) for part in parts),
        *([replace(_estimate("drift", "drift", signed=True), drop=1)] if drifts else ()),
    ]
    title = "Cohen's d, signed: positive where right answers have the higher values."
    return Table(name="distances", title=title, columns=columns, rows=rows)


def _pearson(diagnostics: Diagnostics) -> Table:
    parts = [part.name for part in diagnostics.parts]
    return Table(
        name="pearson",
        title="Pearson's r of each signal with exact match (0 or 1), all rounds pooled.",
        columns=[_SIGNAL, *(_estimate(f"{part}: r", f"r {part}", signed=True) for part in parts)],
        rows=[
            [signal.name, *(signal.parts[part].pooled.pearson for part in parts)]
            for signal in diagnostics.signals
        ],
    )


def _margins(diagnostics: Diagnostics) -> Iterator[Table]:
    """Raw and calibrated means of the model, a row a part."""
    known = [(part.name, part.margins) for part in diagnostics.parts if part.margins is not None]
    if not known:
        return
    of = "" if diagnostics.model is None else f" of {visible(diagnostics.model)}"
    columns = (
        Column(name="part", head="on"),
        Column(name="rounds", kind="count"),
        Column(name="raw", kind="number", digits=2, head="raw, nats"),
        Column(name="calibrated", kind="number", digits=2),
        Column(name="em", kind="number", digits=2, head="EM"),
    )
    reasons = dict.fromkeys(margins.reason for _, margins in known if margins.reason is not None)
    yield Table(
        name="margins",
        title=f"Mean margin of the answer's first token{of}, all rounds pooled: raw, and calibrated to "
        "P(EM = 1) by one isotonic map a round, fitted on tune (on tune itself out of fold). A large raw "
        "margin with a small calibrated one is overconfidence.",
        columns=columns,
        rows=[
            [name, margins.rounds, margins.raw, margins.calibrated, margins.em]
            for name, margins in known
        ],
        notes=[f"Not calibrated: {reason}" for reason in reasons],
    )


def _wrong_and_stable(diagnostics: Diagnostics) -> Iterator[Table]:
    known = [
        (part.name, part.wrong_and_stable)
        for part in diagnostics.parts
        if part.wrong_and_stable is not None
    ]
    if not known:
        return
    rounds = max(len(shares.rounds) for _, shares in known)
    columns = (
        Column(name="part", head="on"),
        Column(name="answers", kind="count"),
        Column(name="stable", kind="percent", head="stable %"),
        Column(name="wrong_and_stable", kind="percent", head="wrong and\nstable %"),
        *(
            Column(name=f"round_{number}", kind="percent", head=f"round {number}")
            for number in range(2, rounds + 2)
        ),
        Column(name="first_wrong", kind="percent", head="first stable\none wrong %"),
    )
    rows: list[list[Value]] = [
        [
            *(name, shares.overall.answers, shares.overall.stable),
            *(shares.overall.wrong_and_stable, *(one.wrong_and_stable for one in shares.rounds)),
            *[None] * (rounds - len(shares.rounds)),
            shares.first_wrong,
        ]
        for name, shares in known
    ]
    yield Table(
        name="wrong and stable",
        title="Answers that repeat the round before and are wrong, in percent of the labelled answers that "
        "could repeat it, overall and by round; last, in percent of the questions, those whose first stable "
        "answer is wrong.",
        columns=columns,
        rows=rows,
    )


def _by_round(diagnostics: Diagnostics, part: Part) -> Table:
    rounds = max(len(signal.parts[part.name].rounds) for signal in diagnostics.signals)
    columns = [
        _SIGNAL,
        *(
            Column(name=f"round_{number}", kind="number", digits=2, head=f"round {number}")
            for number in range(1, rounds + 1)
        ),
    ]
    rows: list[list[Value]] = []
    for signal in diagnostics.signals:
        values = [on_round.separation.auroc.estimate for on_round in signal.parts[part.name].rounds]
        rows.append([signal.name, *values, *[Cell(None, "")] * (rounds - len(values))])
    title = f"AUROC by round on {part.name}."
    return Table(name=f"rounds on {part.name}", title=title, columns=columns, rows=rows)


def _in_detail(diagnostics: Diagnostics) -> Iterator[Table]:
    columns = (
        Column(name="round", kind="count"),
        _defined("defined", "% defined"),
        Column(name="mean_right", kind="significant", digits=3, head="right"),
        Column(name="sd_right", kind="significant", digits=3, head="(SD)"),
        Column(name="right", kind="count", head="n"),
        Column(name="mean_wrong", kind="significant", digits=3, head="wrong"),
        Column(name="sd_wrong", kind="significant", digits=3, head="(SD)"),
        Column(name="wrong", kind="count", head="n"),
        _estimate("d", "d", signed=True),
        _estimate("auroc", "AUROC"),
    )
    for signal in diagnostics.signals:
        for part, on in signal.parts.items():
            rows: list[list[Value]] = []
            for on_round in on.rounds:
                one = on_round.separation
                rows.append(
                    [
                        *(on_round.round, on_round.defined),
                        *(one.mean_right, one.sd_right, one.right),
                        *(one.mean_wrong, one.sd_wrong, one.wrong, one.d_signed, one.auroc),
                    ]
                )
            yield Table(
                name=f"{signal.name} on {part}",
                title=f"{signal.name} by round on {part}, mean (SD).",
                columns=columns,
                rows=rows,
            )


def _concentrations(diagnostics: Diagnostics) -> Iterator[Table]:
    rows: list[list[Value]] = [
        [
            *(signal.name, part, on.distinct, on.concentration.entropy_nats),
            *(on.concentration.mode, on.concentration.mode_share),
        ]
        for signal in diagnostics.signals
        for part, on in signal.parts.items()
        if on.concentration is not None
    ]
    columns = (
        _SIGNAL,
        Column(name="part", head="on"),
        Column(name="distinct", kind="count", head="values"),
        Column(name="entropy_nats", kind="number", digits=2, head="entropy, nats"),
        Column(name="mode", kind="significant"),
        Column(name="mode_share", kind="percent", head="mode's share, %"),
    )
    title = "Signals of at most 12 values: near 0, one value is given nearly always."
    if rows:
        yield Table(name="concentrations", title=title, columns=columns, rows=rows, names=2)


def _correlated(part: Part) -> Table:
    correlations = part.correlations
    columns = [
        Column(name="number", kind="count", head=""),
        _SIGNAL,
        *(
            Column(name=f"rho_{number}", kind="percent", digits=0, head=str(number))
            for number in range(1, len(correlations.signals) + 1)
        ),
    ]
    rows: list[list[Value]] = [
        [
            *(number, name),
            *(rho if column < number else Cell(rho, "") for column, rho in enumerate(row, start=1)),
        ]
        for number, (name, row) in enumerate(
            zip(correlations.signals, correlations.rho, strict=True), start=1
        )
    ]
    title = f"Spearman's rank correlation in hundredths, on {part.name}."
    return Table(name="correlations", title=title, columns=columns, rows=rows, names=2)


def _by_type(diagnostics: Diagnostics) -> Iterator[Table]:
    part = diagnostics.parts[-1].name
    types = list(diagnostics.signals[0].parts[part].types)
    columns = [_SIGNAL, *(_estimate(f"{kind}: auroc", kind) for kind in types)]
    rows: list[list[Value]] = [
        [signal.name, *(signal.parts[part].types[kind].auroc for kind in types)]
        for signal in diagnostics.signals
    ]
    title = f"AUROC by question type on {part}, all rounds pooled."
    if len(types) > 1:
        yield Table(name="types", title=title, columns=columns, rows=rows)


def _flags(diagnostics: Diagnostics) -> Iterator[Table]:
    rows = [
        (flag.kind, signal.name, flag.message)
        for signal in diagnostics.signals
        for flag in signal.flags
    ]
    columns = (Column(name="flag"), _SIGNAL, Column(name="message", head=""))
    if rows:
        title = "What speaks against signals:"
        yield Table(name="flags", title=title, columns=columns, rows=rows, names=2)


# --- policies ---------------------------------------------------------------------------------------
def type_table(types: Sequence[TypeBreakdown], baseline: str | None) -> Table:
    """Every policy on every type of question."""
    columns = (
        Column(name="type", most=2 * _NAME_WIDTH, once=True),
        _POLICY,
        Column(name="n", kind="count"),
        Column(name="em", kind="percent", head="EM"),
        Column(name="f1", kind="percent", head="F1"),
        Column(name="mean_rounds", kind="number", digits=2, head="rounds"),
        Column(name="delta_f1", kind="points", interval=True, head="delta F1 [95%]"),
    )
    rows: list[list[Value]] = []
    for breakdown in types:
        shown = "(no type)" if breakdown.type is None else breakdown.type
        name = Cell(breakdown.type, f"{shown}{' (few)' if breakdown.few else ''}")
        for scores in breakdown.policies:
            delta: Value = scores.delta_f1
            if scores.policy == baseline:
                delta = Cell(scores.delta_f1, "(baseline)")
            rows.append(
                [
                    *(name, scores.policy, breakdown.labelled, scores.em, scores.f1),
                    *(scores.mean_rounds, delta),
                ]
            )
    title = "Policies by question type; EM, F1 and differences in percent. Few: under 10 questions."
    return Table(name="policies by type", title=title, columns=columns, rows=rows, names=2)


def selective_tables(results: Sequence[SelectiveResult]) -> Iterator[Table]:
    """AUROC and area under the risk-coverage curve, the answers above and below the threshold, abstentions.

    None for no result.
    """
    if not results:
        return
    first = results[0]
    whose = "its own" if first.confidence == "policy" else f"signal {first.confidence}"
    caption = (
        f"Selective prediction by the confidence at the stop ({whose}). AURC: mean risk (1 - EM) over "
        "all coverages; excess: above the best possible order. Above: confidence of at least the "
        f"threshold{' (its median)' if first.threshold_is_median else ''}."
    )
    yield Table(
        name="confidences",
        title=caption,
        columns=(
            _POLICY,
            _estimate("auroc", "AUROC"),
            _USE,
            _estimate("aurc", "AURC"),
            replace(_estimate("excess_aurc", "excess AURC"), drop=2),
            Column(name="undefined", kind="count", drop=1),
        ),
        rows=[
            [
                *(result.policy, result.auroc, _use(result.use)),
                *(result.aurc, result.excess_aurc),
                result.undefined or Cell(0, ""),
            ]
            for result in results
        ],
    )
    yield Table(
        name="above and below",
        columns=(
            _POLICY,
            Column(name="threshold", kind="significant", digits=3),
            *_group("above", "n above"),
            *_group("below", "n below"),
        ),
        rows=[
            [
                *(result.policy, result.threshold),
                *(result.above.questions, result.above.em, result.above.f1.estimate),
                *(result.below.questions, result.below.em, result.below.f1.estimate),
            ]
            for result in results
        ],
    )
    abstaining = [result for result in results if result.abstentions.count]
    if abstaining:
        percents: tuple[tuple[str, str], ...] = (
            *(("all_em", "EM of all"), ("all_f1", "F1 of all")),
            *(("without_em", "EM without"), ("without_f1", "F1 without")),
        )
        yield Table(
            name="abstentions",
            columns=(
                _POLICY,
                Column(name="share", kind="percent", head="abstain, %"),
                *(
                    Column(name=name, kind="percent", head=head, interval=name.endswith("em"))
                    for name, head in percents
                ),
            ),
            rows=[
                [
                    *(result.policy, result.abstentions.share),
                    *(result.answers.em, result.answers.f1.estimate),
                    *(result.abstentions.others.em, result.abstentions.others.f1.estimate),
                ]
                for result in abstaining
            ],
        )


def _group(name: str, head: str) -> tuple[Column, Column, Column]:
    return (
        Column(name=f"{name}_n", kind="count", head=head),
        Column(name=f"{name}_em", kind="percent", interval=True, head="EM [95%]"),
        Column(name=f"{name}_f1", kind="percent", head="F1"),
    )


# --- calibrators ------------------------------------------------------------------------------------
def calibrator_tables(study: CalibratorStudy) -> tuple[Table, Table]:
    """The kinds by their probabilities, and the same by their rules, with the notes."""
    first = study.results[0]

    def against(score: CalibratorScore, value: Value) -> Value:
        return Cell(None, _FIRST) if score is first else value

    number: Kind = "number"
    probabilities = Table(
        name="calibrators",
        title=f"Brier score of calibrators of {study.signal}, fitted on {study.tune_split} (out of fold "
        f"there, {study.tune_questions} questions), and on {study.eval_split} ({study.eval_questions}); "
        "log loss and ECE on eval; lower is better.",
        columns=(
            Column(name="calibrator"),
            Column(name="tune", kind=number, digits=4),
            Column(name="eval", kind=number, digits=4, interval=True, head="eval [95%]"),
            Column(
                name="delta",
                kind=number,
                digits=4,
                interval=True,
                signed=True,
                head=f"against {first.kind}",
            ),
            Column(
                name="tune_log_loss", kind=number, digits=3, head="log loss tune", in_text=False
            ),
            Column(name="log_loss", kind=number, digits=3, head="log loss"),
            Column(name="tune_ece", kind=number, digits=3, head="ECE tune", in_text=False),
            Column(name="ece", kind=number, digits=3, head="ECE"),
            Column(name="rows", kind="count", head="rounds scored", in_text=False),
        ),
        rows=[
            [
                *(score.kind, score.tune.brier.estimate, score.eval.brier),
                *(against(score, score.eval.delta_brier), score.tune.log_loss, score.eval.log_loss),
                *(score.tune.ece, score.eval.ece, score.eval.rows),
            ]
            for score in study.results
        ],
    )
    rules = Table(
        name="rules of calibrators",
        title=f"The rule that reads them, F1 and EM in percent on eval: {study.rule}",
        columns=(
            Column(name="calibrator"),
            Column(name="floor", kind="significant"),
            Column(name="f1", kind="percent", interval=True, head="F1 [95%]"),
            Column(name="delta_f1", kind="points", interval=True, head=f"against {first.kind}"),
            Column(name="em", kind="percent", head="EM"),
            Column(name="mean_rounds", kind=number, digits=2, head="rounds"),
        ),
        rows=[
            [
                *(score.kind, score.floor, score.f1, against(score, score.delta_f1)),
                *(score.em, score.mean_rounds),
            ]
            for score in study.results
        ],
        notes=[f"Note: {note}." for note in study.notes],
    )
    return probabilities, rules
