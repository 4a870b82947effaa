"""A diagnosis in tables: signals, policies by question type, confidences, calibrators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from suffice.results.formats import UNKNOWN, count, counted
from suffice.results.table import Cell, Column, Kind, Table, Value

if TYPE_CHECKING:
    from suffice.replay.diagnose.breakdown import TypeBreakdown
    from suffice.replay.diagnose.calibrator_study import CalibratorScore, CalibratorStudy
    from suffice.replay.diagnose.diagnosis import Diagnosis
    from suffice.replay.diagnose.selective import SelectiveResult
    from suffice.replay.diagnose.signal_diagnostics import Diagnostics, Part

_MOST_IN_DETAIL = 3  # signals whose means by round are shown
_NAME_WIDTH = 24
_SIGNAL = Column(name="signal", most=_NAME_WIDTH)
_POLICY = Column(name="policy", most=_NAME_WIDTH)
_FIRST = "(the first)"


def diagnosis_tables(diagnosis: Diagnosis) -> Iterator[Table]:
    """Every table, then what the figures are and the notes."""
    yield from signal_tables(diagnosis.signals)
    if any(breakdown.type is not None for breakdown in diagnosis.types):
        yield type_table(diagnosis.types, diagnosis.replayed.baseline)
    yield from selective_tables(diagnosis.selective)
    if diagnosis.calibrators is not None:
        yield from calibrator_tables(diagnosis.calibrators)
    else:
        why = f"Calibrators are not compared: {diagnosis.no_calibrators or ''}"
        yield Table(name="calibrators", title=why)
    yield Table(name="notes", notes=[f"Note: {note}" for note in diagnosis.notes])


# --- signals ----------------------------------------------------------------------------------------
def signal_tables(found: Diagnostics) -> Iterator[Table]:
    """AUROC and d of every signal, by round, by type and by value, and what speaks against it."""
    if not found.signals:
        yield Table(name="signals", title="No signal is defined in these traces.")
        return
    yield _areas(found)
    yield _distances(found)
    for part in found.parts:
        yield _by_round(found, part)
    if len(found.signals) <= _MOST_IN_DETAIL:
        yield from _in_detail(found)
    yield from _concentrations(found)
    yield from (
        _correlated(part) for part in found.parts[-1:] if len(part.correlations.signals) > 1
    )
    yield from _by_type(found)
    yield from _flags(found)


def _estimate(name: str, head: str, *, signed: bool = False) -> Column:
    return Column(name=name, kind="number", digits=2, interval=True, signed=signed, head=head)


def _areas(found: Diagnostics) -> Table:
    parts = [part.name for part in found.parts]
    drifts = len(parts) > 1
    rows: list[list[Value]] = [
        [
            *(signal.name, "low" if signal.direction == "low" else None),
            *(signal.parts[part].defined for part in parts),
            *(signal.parts[part].pooled.auroc for part in parts),
            *([signal.drift_auroc] if drifts else ()),
        ]
        for signal in found.signals
    ]
    columns = [
        _SIGNAL,
        Column(name="direction", head=""),
        *(_defined(f"{part}: defined", f"% def.\n{part}") for part in parts),
        *(_estimate(f"{part}: auroc", f"AUROC {part}") for part in parts),
        *([_estimate("drift", "drift", signed=True)] if drifts else ()),
    ]
    title = (
        "AUROC of each signal against exact match, all rounds pooled (0.5: no better than chance). "
        "low: low values speak for stopping, and AUROC is that of the negated signal."
    )
    return Table(name="signals", title=title, columns=columns, rows=rows, notes=[_figures(found)])


def _defined(name: str, head: str) -> Column:
    return Column(name=name, kind="percent", digits=0, head=head)


def _figures(found: Diagnostics) -> str:
    parts = "; ".join(
        f"{part.name}: {counted(part.questions, 'question')}, {count(part.labelled)} with gold answers, "
        f"{counted(part.rounds, 'round')}"
        for part in found.parts
    )
    names = [part.name for part in found.parts]
    drift = f"drift: {names[1]} minus {names[0]}. " if len(names) > 1 else ""
    return (
        f"{parts}. Brackets: 95% intervals of {found.resamples} resamples of the questions (seed "
        f"{found.seed}). {drift}{UNKNOWN}: undefined; --json says why."
    )


def _distances(found: Diagnostics) -> Table:
    parts = [part.name for part in found.parts]
    drifts = len(parts) > 1
    rows: list[list[Value]] = [
        [
            signal.name,
            *(signal.parts[part].pooled.d_signed for part in parts),
            *([signal.drift_d] if drifts else ()),
        ]
        for signal in found.signals
    ]
    columns = [
        _SIGNAL,
        *(_estimate(f"{part}: d", f"d {part}", signed=True) for part in parts),
        *([_estimate("drift", "drift", signed=True)] if drifts else ()),
    ]
    title = "Cohen's d, signed: positive where right answers have the higher values."
    return Table(name="distances", title=title, columns=columns, rows=rows)


def _by_round(found: Diagnostics, part: Part) -> Table:
    rounds = max(len(signal.parts[part.name].rounds) for signal in found.signals)
    columns = [
        _SIGNAL,
        *(
            Column(name=f"round_{number}", kind="number", digits=2, head=f"round {number}")
            for number in range(1, rounds + 1)
        ),
    ]
    rows: list[list[Value]] = []
    for signal in found.signals:
        values = [each.separation.auroc.estimate for each in signal.parts[part.name].rounds]
        rows.append([signal.name, *values, *[Cell(None, "")] * (rounds - len(values))])
    title = f"AUROC by round on {part.name}."
    return Table(name=f"rounds on {part.name}", title=title, columns=columns, rows=rows)


def _in_detail(found: Diagnostics) -> Iterator[Table]:
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
    for signal in found.signals:
        for part, on in signal.parts.items():
            rows: list[list[Value]] = []
            for each in on.rounds:
                one = each.separation
                rows.append(
                    [
                        *(each.round, each.defined, one.mean_right, one.sd_right, one.right),
                        *(one.mean_wrong, one.sd_wrong, one.wrong, one.d_signed, one.auroc),
                    ]
                )
            yield Table(
                name=f"{signal.name} on {part}",
                title=f"{signal.name} by round on {part}, mean (SD).",
                columns=columns,
                rows=rows,
            )


def _concentrations(found: Diagnostics) -> Iterator[Table]:
    rows: list[list[Value]] = [
        [
            *(signal.name, part, on.distinct, on.concentration.entropy_bits),
            *(on.concentration.mode, on.concentration.mode_share),
        ]
        for signal in found.signals
        for part, on in signal.parts.items()
        if on.concentration is not None
    ]
    columns = (
        _SIGNAL,
        Column(name="part", head="on"),
        Column(name="distinct", kind="count", head="values"),
        Column(name="entropy_bits", kind="number", digits=2, head="entropy, bits"),
        Column(name="mode", kind="significant"),
        Column(name="mode_share", kind="percent", head="mode's share, %"),
    )
    title = "Signals of at most 12 values: near 0 bits, one value is given nearly always."
    if rows:
        yield Table(name="concentrations", title=title, columns=columns, rows=rows, names=2)


def _correlated(part: Part) -> Table:
    found = part.correlations
    columns = [
        Column(name="number", kind="count", head=""),
        _SIGNAL,
        *(
            Column(name=f"rho_{number}", kind="percent", digits=0, head=str(number))
            for number in range(1, len(found.signals) + 1)
        ),
    ]
    rows: list[list[Value]] = [
        [
            *(number, name),
            *(rho if column < number else Cell(rho, "") for column, rho in enumerate(row, start=1)),
        ]
        for number, (name, row) in enumerate(zip(found.signals, found.rho, strict=True), start=1)
    ]
    title = f"Spearman's rank correlation in hundredths, on {part.name}."
    return Table(name="correlations", title=title, columns=columns, rows=rows, names=2)


def _by_type(found: Diagnostics) -> Iterator[Table]:
    part = found.parts[-1].name
    types = list(found.signals[0].parts[part].types)
    columns = [_SIGNAL, *(_estimate(f"{kind}: auroc", kind) for kind in types)]
    rows: list[list[Value]] = [
        [signal.name, *(signal.parts[part].types[kind].auroc for kind in types)]
        for signal in found.signals
    ]
    title = f"AUROC by question type on {part}, all rounds pooled."
    if len(types) > 1:
        yield Table(name="types", title=title, columns=columns, rows=rows)


def _flags(found: Diagnostics) -> Iterator[Table]:
    rows = [
        (flag.kind, signal.name, flag.message) for signal in found.signals for flag in signal.flags
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
            _estimate("aurc", "AURC"),
            _estimate("excess_aurc", "excess AURC"),
            Column(name="undefined", kind="count"),
        ),
        rows=[
            [
                *(each.policy, each.auroc, each.aurc, each.excess_aurc),
                each.undefined or Cell(0, ""),
            ]
            for each in results
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
                *(each.policy, each.threshold),
                *(each.above.questions, each.above.em, each.above.f1.estimate),
                *(each.below.questions, each.below.em, each.below.f1.estimate),
            ]
            for each in results
        ],
    )
    abstaining = [each for each in results if each.abstentions.count]
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
                    *(each.policy, each.abstentions.share),
                    *(each.answers.em, each.answers.f1.estimate),
                    *(each.abstentions.others.em, each.abstentions.others.f1.estimate),
                ]
                for each in abstaining
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

    def against(each: CalibratorScore, value: Value) -> Value:
        return Cell(None, _FIRST) if each is first else value

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
                *(each.kind, each.tune.brier.estimate, each.eval.brier),
                *(against(each, each.eval.delta_brier), each.tune.log_loss, each.eval.log_loss),
                *(each.tune.ece, each.eval.ece, each.eval.rows),
            ]
            for each in study.results
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
                *(each.kind, each.floor, each.f1, against(each, each.delta_f1)),
                *(each.em, each.mean_rounds),
            ]
            for each in study.results
        ],
        notes=[f"Note: {note}." for note in study.notes],
    )
    return probabilities, rules
