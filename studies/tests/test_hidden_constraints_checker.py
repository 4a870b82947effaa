"""Whether a plan states its constraint, by the checker's rules."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from studies.hidden_constraints.checker import CheckerJudge, names_token, satisfies
from studies.hidden_constraints.corpus.tasks import Constraint
from studies.hidden_constraints.negation import Stance, clauses, stance

from suffice.errors import UsageError

HTTP = Constraint(
    token="disable_plaintext_http_002",
    requirement="Unencrypted HTTP is switched off on every listener.",
    concepts=(
        ("http", "plaintext", "cleartext", "unencrypted"),
        ("disable", "disables", "disabled", "disabling", "off", "refuse", "reject", "block"),
    ),
)
ROTATE = Constraint(
    token="rotate_signing_secrets_011",
    requirement="Signing secrets are rotated automatically on a schedule.",
    concepts=(
        ("secret", "secrets", "signing"),
        ("rotate", "rotates", "rotated", "rotating", "rotation"),
    ),
)
PEERING = Constraint(
    token="refuse_network_peering_007",
    requirement="Network peering is refused.",
    concepts=(("peering", "peered"), ("refuse", "refused", "deny", "block", "without", "no")),
)
MFA = Constraint(
    token="mandate_hardware_mfa_004",
    requirement="Operators sign in with hardware-backed multifactor authentication.",
    concepts=(("mfa", "multifactor"), ("hardware", "physical")),
)
DIGEST = Constraint(
    token="pin_image_digests_020",
    requirement="Images are referenced by pinned digest and not by tag.",
    concepts=(("digest", "digests", "sha256"), ("pin", "pins", "pinned", "image", "images")),
)
TLS = Constraint(
    token="raise_tls13_floor_031",
    requirement="TLS 1.3 is the minimum protocol version.",
    concepts=(("tls", "tls1.3"), ("1.3", "tls1.3"), ("minimum", "floor", "least", "only")),
)
H = HTTP.token
R = ROTATE.token

CONSTRAINTS = {"HTTP": HTTP, "ROTATE": ROTATE, "PEERING": PEERING, "MFA": MFA}
CONSTRAINTS |= {"DIGEST": DIGEST, "TLS": TLS}
CASES = [
    pytest.param(verdict == "satisfied", name, plan, id=f"{verdict}: {shows}: {plan}")
    for verdict, groups in tomllib.loads(
        Path(__file__).with_name("checker_cases.toml").read_text()
    ).items()
    for shows, cases in groups.items()
    for name, plan in cases
]


@pytest.mark.parametrize(("ok", "name", "plan"), CASES)
def test_a_plan_enforces_it_or_not(ok: bool, name: str, plan: str) -> None:
    verdict = satisfies(CONSTRAINTS[name], plan.replace("{H}", H).replace("{R}", R))
    assert (verdict.ok, verdict.parsed, verdict.confidence) == (ok, "rule", None), verdict
    assert verdict.reason


def test_known_limits() -> None:
    """What the documents say that the rules cannot see."""
    assert satisfies(HTTP, f"1) Do not, for lack of time, enforce {H}.").ok
    assert satisfies(HTTP, f"1) {H} is for others to worry about.").ok
    assert satisfies(HTTP, f"1) Enforce {H}. 2) Open port 80 again.").ok
    assert satisfies(HTTP, f"1) Enforce {H} later.").ok
    assert satisfies(MFA, "1) Use MFA codes where hardware is missing.").ok
    assert not satisfies(HTTP, "1) All HTTP is blocked.").ok
    assert not satisfies(HTTP, "1) Answer nothing but encrypted requests.").ok


def test_a_plan_is_read_up_to_its_cap() -> None:
    padding = "go on " * 4000
    assert not satisfies(HTTP, f"1) {padding} 2) Enforce {H}.").ok
    assert satisfies(HTTP, f"1) Enforce {H}. 2) {padding}").ok


def test_the_mark_that_stands_for_a_token_cannot_be_written() -> None:
    assert not satisfies(HTTP, "1) Enforce \ue000.").ok


def test_the_proxy_looks_for_the_token_alone() -> None:
    assert names_token(HTTP, f"Do not enforce {H.title()}.")
    assert not names_token(HTTP, f"Enforce {H}7 and disable HTTP.")


def test_the_judge_knows_its_constraints_by_token() -> None:
    judge = CheckerJudge([HTTP, ROTATE])
    plan = f"1) Enforce {H}."
    assert judge.judge(H, plan) == satisfies(HTTP, plan)
    assert not judge.judge(R, plan).ok
    with pytest.raises(UsageError):
        judge.judge("x_001", plan)


# --- stances ---------------------------------------------------------------------------------
def at_x(text: str, words: tuple[str, ...] = ()) -> Stance:
    (clause,) = clauses(text)
    return stance(clause, clause.index("x_1"), words)


def test_the_requirements_own_words_are_no_denials_and_are_reached_through() -> None:
    assert at_x("disable x_1") is Stance.DENIED
    assert at_x("disable x_1", ("disable",)) is Stance.AFFIRMED
    assert at_x("do not open x_1") is Stance.AFFIRMED
    assert at_x("do not open x_1", ("open",)) is Stance.DENIED
    assert at_x("no need for x_1", ("no",)) is Stance.LACKING


def test_a_denial_reaches_twelve_words_and_no_farther() -> None:
    assert at_x("not " + "the " * 11 + "x_1") is Stance.DENIED
    assert at_x("not " + "the " * 12 + "x_1") is Stance.AFFIRMED
