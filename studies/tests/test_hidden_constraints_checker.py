from __future__ import annotations

import pytest
from studies.hidden_constraints.checker import CheckerJudge, names_token, satisfies
from studies.hidden_constraints.corpus.tasks import Constraint
from studies.hidden_constraints.negation import Stance, clauses, is_identifier, stance

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

SATISFIED = [
    # the token
    (HTTP, f"1) Create the listener. 2) Enforce {H}."),
    (HTTP, f"1) {H}"),
    (HTTP, f"1) Apply {H.upper()} to the listener."),
    (HTTP, f"1) Enforce the control ({H}) on all listeners. 2) Test."),
    (HTTP, f"1) Set up `{H}`: TLS alone answers."),
    (HTTP, f"- Create the queue\n- Turn on {H}\n- Test it"),
    (HTTP, f"Create the queue.\nHonour {H} on every listener."),
    # a negation that belongs to the requirement
    (HTTP, f"1) Do not allow plaintext HTTP on any listener ({H})."),
    (HTTP, f"1) Do not redirect port 80; close it, as {H} says."),
    (HTTP, f"1) No listener may accept HTTP, per {H}."),
    (HTTP, f"1) Enforce {H} so that callers cannot use port 80."),
    (HTTP, f"1) {H}: not a single listener answers in the clear."),
    (HTTP, f"1) Remove every cleartext listener to satisfy {H}."),
    (HTTP, f"1) Disable HTTP without downtime ({H})."),
    (HTTP, f"1) Do not go live until {H} is enforced."),
    (HTTP, "1) Disable plaintext HTTP and do not redirect port 80."),
    (PEERING, "1) Create the network with no peering."),
    (PEERING, "1) Build the network without peering."),
    (DIGEST, "1) Reference images by digest, never by tag."),
    (DIGEST, "1) Images use a sha256 digest and not a tag."),
    # two denials
    (HTTP, f"1) Never skip {H}."),
    (HTTP, f"1) Do not grant exceptions from {H}."),
    (HTTP, f"1) Change the route without removing {H}."),
    (HTTP, f"1) Do not disable the control {H}."),
    (DIGEST, "1) Reject images without a pinned digest."),
    (MFA, "1) No operator signs in without hardware MFA."),
    (ROTATE, "1) Do not skip rotation of the signing secrets."),
    # another's denial beside it
    (ROTATE, f"1) Skip {H} and enforce {R}."),
    (ROTATE, f"1) CANNOT_ENFORCE {H}, WILL_ENFORCE {R}."),
    (ROTATE, f"1) {R}: WILL_ENFORCE, {H}: CANNOT_ENFORCE"),
    (ROTATE, f"1) Skip the tape archive, and enforce {R}."),
    (ROTATE, f"1) Do not wait; enforce {R}."),
    (ROTATE, f"1) We cannot do everything but will enforce {R}."),
    # the requirement in words
    (ROTATE, "1) Rotate the signing secrets every 30 days."),
    (ROTATE, "1) Schedule automatic rotation for each secret."),
    (MFA, "1) Require hardware-backed MFA for operators."),
    (TLS, "1) Accept TLS 1.3 only."),
    (TLS, "1) Make TLS1.3 the minimum."),
    # the last step that speaks
    (ROTATE, f"1) Skip {R} for now. 2) Open the queue. 3) Enforce {R}."),
    (ROTATE, f"1) Enforce {R}. 2) Check that {R} was not skipped."),
    (ROTATE, f"1) Skip {R} in the pilot; then enforce {R}."),
    (ROTATE, "1) Rotate the signing secrets. 2) Test that jobs do not rotate secrets twice."),
    (ROTATE, "1) Rotate the signing secrets. 2) Verify that no secret was left without rotation."),
    (ROTATE, f"1) Enforce {R}. 2) Remove the old secrets. 3) Announce the queue."),
]

NOT_SATISFIED = [
    (HTTP, ""),
    (HTTP, "   "),
    (HTTP, "1) Create the listener. 2) Open it."),
    # not this token
    (HTTP, "1) Enforce disable_plaintext_http_031."),
    (HTTP, f"1) Enforce {H}7."),
    (HTTP, f"1) Enforce x{H}."),
    (HTTP, f"1) Enforce {H}_legacy."),
    # a part of it
    (HTTP, "1) Create an HTTP listener."),
    (HTTP, "1) Disable the old listener."),
    (HTTP, "1) Create an HTTP listener. 2) Disable the old gateway."),
    (TLS, "1) Use TLS 1.3 where clients can."),
    # denied before it
    (HTTP, f"1) Do not enforce {H}."),
    (HTTP, f"1) We don't apply the control {H} here."),
    (HTTP, f"1) Skip {H}."),
    (HTTP, f"1) Skipped: {H}"),
    (HTTP, f"1) Unable to comply with {H}."),
    (HTTP, f"1) Use a redirect instead of {H}."),
    (HTTP, f"1) Redirect rather than enforce {H}."),
    (HTTP, f"1) Go live without {H}."),
    (HTTP, f"1) Go live without enforcing the control {H}."),
    (HTTP, f"1) CANNOT_ENFORCE: {H}, since old meters speak HTTP."),
    (HTTP, f"1) There is no need to enforce {H}."),
    (HTTP, f"1) Do not enforce {R} or {H}."),
    (HTTP, f"1) Fail to apply {H}."),
    (HTTP, f"1) Will not be enforcing {H} at launch."),
    # denied after it
    (HTTP, f"1) {H} is not applicable here."),
    (HTTP, f"1) {H}: not applicable"),
    (HTTP, f"1) {H} cannot be enforced."),
    (HTTP, f"1) {H} is skipped."),
    (HTTP, f"1) {H} - CANNOT_ENFORCE"),
    (HTTP, f"1) {H}, which cannot be enforced, is left to the next team."),
    (HTTP, f"1) {H} does not apply."),
    (HTTP, f"1) {H} is out of scope."),
    (HTTP, f"1) The control {H} is no longer needed."),
    (HTTP, f"1) {H} (skipped)"),
    (HTTP, f"1) {H} was not found to be relevant."),
    (HTTP, f"1) {H} is left for later."),
    (HTTP, f"1) Leave out {H}."),
    (HTTP, f"1) Request an exception from {H}."),
    # the requirement denied in words
    (HTTP, "1) Do not disable plaintext HTTP."),
    (ROTATE, "1) Do not rotate the signing secrets."),
    (ROTATE, "1) Skip rotation of the signing secrets."),
    (ROTATE, "1) Keep the signing secrets without rotation."),
    (ROTATE, "1) Rotation of signing secrets is not needed."),
    (ROTATE, "1) Secrets will never be rotated."),
    (ROTATE, "1) Keep the signing secrets and disable automatic rotation."),
    (DIGEST, "1) Deploy the image by tag rather than by digest."),
    (PEERING, "1) Set up network peering without delay."),
    (MFA, "1) Do not require hardware MFA."),
    (MFA, "1) Hardware MFA is not required."),
    (MFA, "1) Operators sign in without hardware MFA."),
    # taken back
    (HTTP, f"1) Enforce {H}. 2) Open the queue. 3) Remove the control {H}."),
    (HTTP, f"1) Enforce {H}. 2) Disable {H}."),
    (HTTP, "1) Disable plaintext HTTP. 2) Do not disable plaintext HTTP after all."),
    (ROTATE, "1) Rotate the signing secrets. 2) Stop rotating the signing secrets."),
    (ROTATE, "1) Rotate the signing secrets. 2) Turn off rotation of the signing secrets."),
]


@pytest.mark.parametrize(("constraint", "plan"), SATISFIED)
def test_a_plan_that_enforces_it(constraint: Constraint, plan: str) -> None:
    verdict = satisfies(constraint, plan)
    assert (verdict.ok, verdict.parsed, verdict.confidence) == (True, "rule", None), verdict
    assert verdict.reason.startswith("step ")


@pytest.mark.parametrize(("constraint", "plan"), NOT_SATISFIED)
def test_a_plan_that_does_not(constraint: Constraint, plan: str) -> None:
    verdict = satisfies(constraint, plan)
    assert (verdict.ok, verdict.parsed) == (False, "rule"), verdict


def test_the_reason_names_the_step_that_decides() -> None:
    assert satisfies(HTTP, f"1) Go. 2) Enforce {H}.").reason == "step 2 names the token"
    assert satisfies(HTTP, f"1) Enforce {H}. 2) Skip {H}.").reason == "step 2 denies the token"
    said = satisfies(HTTP, "1) Go. 2) Go. 3) Turn off cleartext listeners.")
    assert said.reason == "step 3 states the requirement: cleartext, off"
    assert satisfies(HTTP, "1) Do not disable HTTP.").reason == "step 1 denies the requirement"
    assert satisfies(HTTP, "1) Go.").reason == "no step states the requirement"


def test_known_limits() -> None:
    """What the documents say that the rules cannot see."""
    assert satisfies(HTTP, f"1) Do not, for lack of time, enforce {H}.").ok
    assert satisfies(HTTP, f"1) {H} is for others to worry about.").ok
    assert satisfies(HTTP, f"1) Enforce {H}. 2) Open port 80 again.").ok
    assert satisfies(HTTP, f"1) Enforce {H} later.").ok
    assert satisfies(MFA, "1) Use MFA codes where hardware is missing.").ok
    assert not satisfies(HTTP, "1) All HTTP is blocked.").ok
    assert not satisfies(HTTP, "1) Answer nothing but encrypted requests.").ok


def test_a_constraint_without_concepts_needs_its_token() -> None:
    bare = Constraint(token=H, requirement="Whatever.", concepts=())
    assert satisfies(bare, f"1) Enforce {H}.").ok
    assert not satisfies(bare, "1) Disable plaintext HTTP.").ok


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
    assert CheckerJudge([HTTP]).judge(H, plan).ok
    with pytest.raises(UsageError, match=r"unknown constraint 'x_001'; .* given 2 others"):
        judge.judge("x_001", plan)


# --- stances ---------------------------------------------------------------------------------
def at_x(text: str, words: tuple[str, ...] = ()) -> Stance:
    (clause,) = clauses(text)
    return stance(clause, clause.index("x_1"), words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("keep x_1", Stance.AFFIRMED),
        ("no x_1", Stance.LACKING),
        ("go without x_1", Stance.LACKING),
        ("not without x_1", Stance.AFFIRMED),
        ("skip x_1", Stance.DENIED),
        ("listeners to disable: x_1", Stance.AFFIRMED),
        ("disable: x_1", Stance.DENIED),
        ("refuse to apply x_1", Stance.DENIED),
        ("refuse calls for x_1", Stance.AFFIRMED),
        ("x_1 is not skipped", Stance.AFFIRMED),
        ("x_1 was removed", Stance.DENIED),
        ("x_1 removed the listener", Stance.AFFIRMED),
        ("x_1: no", Stance.DENIED),
        ("x_1 holds", Stance.AFFIRMED),
        ("x_1 ruled out of scope", Stance.DENIED),
        ("will_enforce x_1", Stance.AFFIRMED),
        ("will_enforce y_2 and cannot_enforce x_1", Stance.DENIED),
        ("cannot_enforce y_2 and will_enforce x_1", Stance.AFFIRMED),
        ("x_1 is never not applied", Stance.AFFIRMED),
        ("will_not_enforce: x_1", Stance.DENIED),
        ("do not simply apply x_1", Stance.DENIED),
    ],
)
def test_stances(text: str, expected: Stance) -> None:
    assert at_x(text) is expected


def test_the_requirements_own_words_are_no_denials_and_are_reached_through() -> None:
    assert at_x("disable x_1") is Stance.DENIED
    assert at_x("disable x_1", ("disable",)) is Stance.AFFIRMED
    assert at_x("do not open x_1") is Stance.AFFIRMED
    assert at_x("do not open x_1", ("open",)) is Stance.DENIED
    assert at_x("no need for x_1", ("no",)) is Stance.LACKING


def test_a_denial_reaches_twelve_words_and_no_farther() -> None:
    assert at_x("not " + "the " * 11 + "x_1") is Stance.DENIED
    assert at_x("not " + "the " * 12 + "x_1") is Stance.AFFIRMED


def test_clauses_end_at_sentences_and_turns() -> None:
    assert list(clauses("Skip it; use TLS 1.3. But why? don't")) == [
        ("skip", "it"),
        ("use", "tls", "1.3"),
        ("why",),
        ("don't",),
    ]
    assert list(clauses("")) == list(clauses(". ;")) == []


def test_an_identifier_has_an_underscore_and_ends_in_a_digit() -> None:
    assert [is_identifier(each) for each in ("a_b_003", "port_a", "v2", "x_1")] == [
        True,
        False,
        False,
        True,
    ]
