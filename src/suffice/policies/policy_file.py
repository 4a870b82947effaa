"""Policy files: readable JSON with a version, no pickle."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.contracts import FilteringPolicy, StatedFilter, StopPolicy, strict_json
from suffice.errors import DataError, UsageError, read_plain, unknown_name
from suffice.policies.method import Weighted, weights_beside
from suffice.policies.registry import find_kind, kind_names
from suffice.signals.plugins import answered_by
from suffice.stats.fields import Fields, whole

POLICY_VERSION = 1
_DECIDES_NOTHING = ("budget", "costs", "fitted_on", "guarantee", "levels", "notes")


def policy_document(policy: StopPolicy) -> dict[str, Any]:
    document = getattr(policy, "document", None)
    if document is None:
        raise UsageError(
            f"a policy with a file, such as suffice.Rule(TEXT), is needed, found {policy!r:.60}"
        )
    with answered_by(policy, f"the document of the {policy.kind} policy"):
        return {"suffice_policy": POLICY_VERSION, "kind": policy.kind, **document()}


def policy_hash(policy: StopPolicy) -> str:
    """Return twelve hexadecimal digits over all parts that decide."""
    document = policy_document(policy)
    for part in _DECIDES_NOTHING:
        document.pop(part, None)
    with answered_by(policy, f"the document of the {policy.kind} policy"):
        canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def save_policy(
    policy: StopPolicy,
    path: str | Path,
    *,
    max_rounds: int | None = None,
    remark: str | None = None,
    chosen_on: Mapping[str, Any] | None = None,
) -> Path:
    """Write a policy file; a path that does not end in ``.json`` is a folder for ``policy.json``.

    The weights of a network get the same name with ``.safetensors``. ``max_rounds`` is the full budget of
    the loop, at which a live loop ends by default, never the policy's own stop. ``remark`` is a note to
    readers of the file, ``chosen_on`` tells the questions it was chosen on. A path that is neither is a
    UsageError, a disk that refuses a BackendError.
    """
    from suffice.results.as_json import as_json
    from suffice.trace.durable import replace_file, replaced_together, writable

    target = writable(path, ".json", folder=True)
    if target.suffix != ".json":
        target = target / "policy.json"
    document = policy_document(policy)
    if max_rounds is not None:
        document["max_rounds"] = max_rounds
    if remark is not None:
        document["remark"] = remark
    if chosen_on is not None:
        document["chosen_on"] = chosen_on
    text = json.dumps(as_json(document), indent=1, allow_nan=False) + "\n"
    if isinstance(policy, Weighted):
        files = {target.name: text.encode(), weights_beside(target).name: policy.weights_file()}
        with replaced_together(target.parent, tuple(files)) as aside:
            for name, content in files.items():
                (aside / name).write_bytes(content)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_file(target, text.encode())
    return target


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A policy from a file, with the budget (``None``: none) and the questions that the file states."""

    policy: StopPolicy
    max_rounds: int | None
    chosen_on: Mapping[str, Any] = field(default_factory=dict)


def names_policy_file(name: str) -> bool:
    """Return whether a name is a path, rather than a method's name or a rule's text."""
    try:
        return name.endswith(".json") or (name != "" and Path(name).exists())
    except OSError as error:  # no path can be that long: a rule's text
        return isinstance(error, PermissionError)


def load_policy(path: str | Path) -> PolicyFile:
    """Read a policy file, or the ``policy.json`` of a folder; a DataError names file and field."""
    file = Path(path)
    file = file / "policy.json" if file.is_dir() else file
    return _parsed(_read_document(file), file)


def _parsed(document: Mapping[str, Any], file: Path) -> PolicyFile:
    named, budget = document.get("kind"), document.get("max_rounds")
    kind = find_kind(named) if isinstance(named, str) else None
    try:
        check_version(document, "suffice_policy", POLICY_VERSION)
        max_rounds = None if budget is None else whole(budget, "max_rounds", 1)
        if kind is not None:
            chosen_on = Fields(document).of("chosen_on", dict, {})
            with answered_by(kind, f"policies of kind {named!r}"):
                return PolicyFile(kind.read(document, file), max_rounds, chosen_on)
    except DataError as error:
        raise DataError(error.message, file=str(file), column=error.column) from error
    except UsageError as error:
        column = None if kind is None else kind.main_field
        raise DataError(str(error), file=str(file), column=column) from error
    raise DataError(unknown_name("policy kind", named, kind_names()), file=str(file), column="kind")


def load_filter(path: str) -> StatedFilter:
    policy = load_policy(path).policy
    if not isinstance(policy, FilteringPolicy):
        raise UsageError(
            f"{path} is a policy of kind {policy.kind!r}; only micp has a passage filter: suffice fit "
            "micp TRACES --out policy.json"
        )
    if policy.filter is None:
        raise UsageError(
            f"the policy of {path} has no passage filter: it was fitted on traces without relevance of "
            "passages, or without gold passages"
        )
    return policy.filter


def _read_document(file: Path) -> dict[str, Any]:
    try:
        document = strict_json(read_plain(file).decode("utf-8"))
    except FileNotFoundError:
        raise DataError(
            "no such policy file; write one with 'suffice fit'", file=str(file)
        ) from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    if not isinstance(document, dict) or "suffice_policy" not in document:
        raise DataError(
            'not a policy file; it must be an object with "suffice_policy": 1', file=str(file)
        )
    return document


def check_version(document: Mapping[str, Any], name: str, newest: int) -> None:
    """Refuse a document whose field ``name`` is no version number up to ``newest``."""
    version = whole(document.get(name), name, 1)
    if version > newest:
        what = name.removeprefix("suffice_")
        raise DataError(
            f"{what} version {version} is newer than {newest}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            column=name,
        )
