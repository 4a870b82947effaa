"""Is a calibrated value what it says: calibrators compared, and predictions against what was right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suffice.replay.diagnose.calibrator_study import CalibratorStudy
from suffice.replay.diagnose.reliability import Reliability, ReliabilityBucket
from suffice.report.draw.marks import Marked, label
from suffice.report.draw.unit_square import Spot, UnitSquare, unit_square
from suffice.report.page.section import Chart, Shown, listed, plain
from suffice.results.formats import count, fraction, percent
from suffice.results.markup import Html, data_table, element


def calibration_section(study: CalibratorStudy) -> Shown:
    """Brier, log loss and ECE of every kind on both splits, and what its rule scores."""
    probabilities, rules = study.tables()
    return Shown(
        finding=_finding(study),
        blocks=[
            plain(
                f"Several ways to turn {study.signal} into a chance of being right, fitted on "
                f"{count(study.tune_questions)} labelled questions of split {study.tune_split}. Tune is out "
                f"of fold; eval is {count(study.eval_questions)} labelled questions of split "
                f"{study.eval_split}. Lower is better for all three scores; intervals are 95%."
            ),
            probabilities.headed("Calibrators by their probabilities").html(),
            element("h3", "The rule that reads them"),
            plain(
                element("code", study.rule),
                f", its floor chosen on {study.tune_split} out of fold, scored on {study.eval_split} "
                "with HotpotQA's F1.",
            ),
            rules.headed("Calibrators by the rule that reads them").html(),
            listed(f"{note[:1].upper()}{note[1:]}." for note in study.notes),
        ],
    )


def _finding(study: CalibratorStudy) -> str:
    best = min(study.results, key=lambda score: score["eval"]["brier"].estimate)
    first = study.results[0]["kind"]
    deltas = [score["eval"]["delta_brier"] for score in study.results[1:]]
    differ, others = sum(not one.low <= 0.0 <= one.high for one in deltas), len(deltas)
    apart = (
        f"{differ or 'none'} of {others} other kinds differ{'' if differ > 1 else 's'} from {first}"
    )
    brier = fraction(best["eval"]["brier"].estimate)
    lowest = f"lowest Brier score on {study.eval_split}: {best['kind']}, {brier}"
    return f"{lowest}; {apart}" if others else lowest


# --- reliability ---------------------------------------------------------------------------------
def reliability_section(
    of_policy: Mapping[str, tuple[Reliability, ...]], policies: Sequence[Marked]
) -> Shown | None:
    """A chart for every calibrated signal; ``None``: there is none."""
    charts = reliability_charts(of_policy, policies)
    intro = plain(
        "Is a calibrated value what it says? Among answers with a predicted chance of 40%, "
        "40% should be right."
    )
    finding = "calibrated values against the share that was right"
    return Shown(finding=finding, blocks=[intro, *charts]) if charts else None


def reliability_charts(
    of_policy: Mapping[str, tuple[Reliability, ...]], policies: Sequence[Marked]
) -> list[Chart]:
    """A chart for every calibrated signal; policies with the same calibration share it."""
    grouped: dict[tuple[Reliability, ...], list[Marked]] = {}
    for policy in policies:
        diagrams = of_policy.get(policy.result.name, ())
        for signal in dict.fromkeys(diagram.signal for diagram in diagrams):
            rounds = tuple(diagram for diagram in diagrams if diagram.signal == signal)
            grouped.setdefault(rounds, []).append(policy)
    return [_chart(policies, rounds) for rounds, policies in grouped.items()]


def _chart(policies: Sequence[Marked], rounds: Sequence[Reliability]) -> Chart:
    heading = f"calibrated({rounds[0].signal})"
    missing = [f"{shown.undefined} in round {shown.round}" for shown in rounds if shown.undefined]
    without = f" Answers without a value: {', '.join(missing)}." if missing else ""
    return Chart(
        heading=heading,
        whose=element("ul", *(element("li", label(policy)) for policy in policies), class_="marks"),
        pictures=[_panel(shown, heading) for shown in rounds],
        caption="Dots: equal-size groups of answers, larger for more answers; whiskers: 95% Wilson "
        f"intervals. On the diagonal, predictions are kept.{without}",
        table=_reliability_table(rounds, heading),
        panels=True,
    )


def _reliability_table(rounds: Sequence[Reliability], heading: str) -> Html:
    rows = [
        (
            f"round {shown.round}",
            percent(bucket.predicted),
            percent(bucket.right),
            f"[{percent(bucket.low)}, {percent(bucket.high)}]",
            bucket.count,
        )
        for shown in rounds
        for bucket in shown.buckets
    ]
    head = ("round", "predicted %", "right %", "95% interval", "answers")
    return data_table(f"Reliability of {heading}", head, rows)


def _panel(shown: Reliability, heading: str) -> Html:
    most = max((bucket.count for bucket in shown.buckets), default=1)
    return unit_square(
        UnitSquare(
            title=f"{heading}, round {shown.round}",
            description=f"{len(shown.buckets)} groups of answers; the numbers are in the table below.",
            x_name="predicted %",
            y_name="right % ↑",
            name=f"Round {shown.round}",
            spots=[_spot(bucket, most) for bucket in shown.buckets],
            said="no value defined",
        )
    )


def _spot(bucket: ReliabilityBucket, most: int) -> Spot:
    return Spot(
        x=bucket.predicted,
        y=bucket.right,
        hint=f"predicted {percent(bucket.predicted)}%, right {percent(bucket.right)}% "
        f"of {bucket.count} answers",
        interval=(bucket.low, bucket.high),
        weight=bucket.count / most,
    )
