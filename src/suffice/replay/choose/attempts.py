"""How often a record was asked for a certificate, kept in the folder of the certificates.

A certificate that is wrong with probability d at most is one of several, made from the same questions
with other settings until one pleases. Of m of them some is wrong with probability d_1 + ... + d_m at most
(union bound), so each spends a part of 1 - confidence, and when all is spent the next one is refused. The
confidence asked for is that of all certificates together, the earlier ones too.

That is exact where what is asked next was settled beforehand, or by nothing but that the last attempt
certified nothing. Where its outcome told what to ask, no share makes up for it: that takes fresh questions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.policies.file import check_version
from suffice.results.formats import counted
from suffice.trace.durable import in_turn, replace_file
from suffice.trace.rounds.rows import record_sha256
from suffice.trace.rounds.table import TraceSet

LEDGER = "certificates.json"
_VERSION = 1
_LEAST_SHARE = 1e-3  # of 1 - confidence: with less left nothing could be proven


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a certificate may spend, and what was spent before it.

    Parameters
    ----------
    level
        Its chance of a broken promise.
    earlier
        How many certificates with other settings were made from the record before, in this folder.
    spent
        What they spent together.
    again
        Whether this very question was asked before, so that it costs nothing and is answered alike.
    folder
        Where that is counted.
    """

    level: float
    earlier: int
    spent: float
    again: bool
    folder: Path

    @property
    def said(self) -> str:
        """The count in words; empty: this is the first."""
        if not self.earlier:
            return ""
        return (
            f"this record has been used for {counted(self.earlier, 'certificate')} with other settings in "
            f"{self.folder} before, which may be wrong with probability {self.spent:.4g}; this one may with "
            f"{self.level:.4g}, so that the confidence is that of all of them together"
        )


def question_hash(asked: Mapping[str, Any]) -> str:
    """Sixteen hexadecimal digits over everything that was asked."""
    canonical = json.dumps(asked, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def spend(
    folder: Path,
    traces: TraceSet,
    asked: Mapping[str, Any],
    *,
    confidence: float,
    attempts: int = 1,
) -> Attempt:
    """Count this attempt, before anything of the half that proves is seen, and say what it may spend.

    That is an equal share of 1 - ``confidence`` where several ``attempts`` are planned, and at most what
    earlier ones left of it.

    Parameters
    ----------
    folder
        Where the certificates are written.
    traces
        The questions that are halved, as recorded.
    asked
        Everything that decides the answer, as JSON; asked again it costs nothing.

    Raises
    ------
    UsageError
        Where nothing is left to spend, with what to do.
    DataError
        Where the folder's count cannot be read.
    """
    file = folder / LEDGER
    record, question = record_sha256(traces)[:16], question_hash(asked)
    allowed = 1.0 - confidence
    with in_turn(folder, LEDGER):
        document = _read(file)
        entry = document["records"].setdefault(
            record,
            {"source": traces.origin.source, "questions": traces.n_questions, "attempts": []},
        )
        spent = 0.0
        for number, one in enumerate(entry["attempts"]):
            if one["question"] == question:
                return Attempt(
                    level=one["level"], earlier=number, spent=spent, again=True, folder=folder
                )
            spent += one["level"]
        earlier = len(entry["attempts"])
        level = allowed / attempts
        if level > allowed - spent:
            level = round(allowed - spent, 12)
        if level < _LEAST_SHARE * allowed:
            _refuse(folder, earlier, spent, confidence)
        entry["attempts"].append(
            {"question": question, "level": level, "confidence": confidence, "asked": asked}
        )
        text = json.dumps(document, indent=1, default=str, allow_nan=False) + "\n"
        replace_file(file, text.encode())
    return Attempt(level=level, earlier=earlier, spent=spent, again=False, folder=folder)


def _refuse(folder: Path, earlier: int, spent: float, confidence: float) -> None:
    lower = max(0.0, 1.0 - 2.0 * spent)
    raise UsageError(
        f"this record has been used for {counted(earlier, 'certificate')} with other settings in {folder}, "
        f"which may be wrong with probability {spent:.4g}: of the {1.0 - confidence:.4g} that confidence "
        f"{confidence:g} allows to all of them together nothing is left. Ask for less, as in --confidence "
        f"{lower:.4g}; or record fresh questions. Where several attempts are planned say so at the first, "
        "as in --attempts 4"
    )


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {"suffice_certificates": _VERSION, "records": {}}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"cannot be read: {error}; {_REMEDY}", file=str(file)) from error
    if not isinstance(document, dict):
        raise DataError(f"must be an object; {_REMEDY}", file=str(file))
    check_version(document, "suffice_certificates", _VERSION, file=str(file))
    records = document.get("records")
    known = isinstance(records, dict) and all(map(_is_entry, records.values()))
    if not known:
        raise DataError(
            f"must map records to their attempts; {_REMEDY}", file=str(file), column="records"
        )
    return document


_REMEDY = (
    "it counts how often records were used for certificates; restore it, or choose another "
    "folder for --out"
)


def _is_entry(entry: object) -> bool:
    if not isinstance(entry, dict) or not isinstance(entry.get("attempts"), list):
        return False
    return all(
        isinstance(one, dict)
        and isinstance(one.get("question"), str)
        and isinstance(one.get("level"), float)
        and 0.0 < one["level"] < 1.0
        for one in entry["attempts"]
    )
