"""What monitors saw as an aligned plain-text table."""

from __future__ import annotations

from suffice.monitor.coverage_watch import Watched, WatchedMonitor
from suffice.report.tables.text import text_table, titled
from suffice.results.formats import percent

_WORDS = {
    "coverage": "answers miss more often than the promise and the luck of calibration explain",
    "exchangeability": "answers no longer look like those calibrated on; not that coverage fell",
}


def alarm_in_words(kind: str) -> str:
    """What an alarm of this kind of monitor says."""
    return _WORDS[kind]


def monitor_table(found: Watched) -> str:
    """Answers, coverage and where each monitor stands."""
    lines = titled(
        f"Promised: at most {percent(found.promise.alpha)}% of answer sets miss, calibrated on "
        f"{found.promise.n_calibration} questions."
    )
    lines += titled(_coverage(found))
    head = ["monitor", "answers used", "capital", "p-value", "alarm"]
    lines += ["", *text_table(head, [_row(each) for each in found.monitors]), ""]
    for each in found.monitors:
        if each.alarmed_at is not None:
            lines += titled(f"{each.kind}: {alarm_in_words(each.kind)}.")
        elif each.taken == 0:
            lines += titled(f"{each.kind}: nothing to go by, since {_MISSING[each.kind]}.")
    if not any(each.kind == "exchangeability" for each in found.monitors):
        lines += titled(
            "The policy file holds no first-round scores: without labels nothing is seen."
        )
    return "\n".join(lines)


_MISSING = {
    "coverage": "no answer came with its right answer",
    "exchangeability": "no answer came with its score at round 1",
}


def _coverage(found: Watched) -> str:
    read = f"{found.answers} answers read, {found.labelled} with a right answer"
    if found.interval is None or found.coverage is None:
        return f"{read}."
    low, high = found.interval
    text = (
        f"{read}, {found.misses} misses: coverage {percent(found.coverage)}% "
        f"[{percent(low)}, {percent(high)}]"
    )
    if found.undecided:
        text += (
            f'; {found.undecided} of them came without samples to tell whether "Can\'t Answer" '
            "is right: counted as covered, and as misses at the interval's low end"
        )
    return f"{text}."


def _row(each: WatchedMonitor) -> list[str]:
    alarm = "no"
    if each.alarmed_at is not None:
        alarm = f"at answer {each.alarmed_at_answer}"
    return [each.kind, str(each.taken), f"{each.capital:.4g}", f"{each.p_value:.3g}", alarm]
