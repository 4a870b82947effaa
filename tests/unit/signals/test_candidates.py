"""Candidates: their agreement by hand, and contradiction by markers, over a plan and over answers."""

from __future__ import annotations

import pytest

from suffice.signals.samples import agreement, marker_conflict


@pytest.mark.parametrize(
    ("candidates", "expected"),
    [
        (["Enable TLS on port 443", "enable tls on port 443"], 1.0),
        (["open port 80", "close port 80"], 2 / 4),
        (["open port 80", "close port 80", "port"], 1 / 4),
        (["a a a", "a b"], 1 / 2),  # sets, so that a repeated token counts once
        (["TLS", "TLS."], 0.0),  # white space alone separates
        (["a", ""], 0.0),
        (["", ""], 0.0),
        ([" \n"], 0.0),
        (["one"], 1.0),
        ([], 0.0),
    ],
)
def test_by_hand(candidates: list[str], expected: float) -> None:
    assert agreement(candidates) == expected


@pytest.mark.parametrize(
    "marked",
    [
        *("do NOT open port 80", "Don't open port 80", "don’t open port 80", "never open port 80"),
        *(
            "cannot open port 80",
            "Can't open port 80",
            "port 80 is INCOMPATIBLE",
            "dont open it: 80",
        ),
        *("this conflicts with port 80", "port 80 and tls are Mutually\nExclusive", "mustn't: 80"),
    ],
)
def test_one_marked_text_and_a_shared_word(marked: str) -> None:
    assert marker_conflict("Open port 80", marked) == 1.0
    assert marker_conflict(marked, "Open port 80") == 1.0
    assert marker_conflict("Attach the disk", marked) == 0.0
    assert marker_conflict(marked, "Never open port 80") == 0.0
    assert marker_conflict(marked, "") == 0.0


@pytest.mark.parametrize(
    "plain",
    [
        *(
            "note port 80",
            "knot at port 80",
            "without port 80",
            "no port 80",
            "resolve the conflict 80",
        ),
        *("exclusive use of port 80", "enforce do_not_open_80 on port 80", "block port 80"),
    ],
)
def test_no_marker_no_conflict(plain: str) -> None:
    assert marker_conflict("Open port 80", plain) == 0.0
    assert marker_conflict("Do not open port 80", plain) == 1.0


def test_stop_words_and_markers_are_not_shared_content() -> None:
    assert marker_conflict("Do this with the step", "Do not do that with the step") == 0.0
    assert marker_conflict("It conflicts with that", "with conflicts") == 0.0


def test_a_name_is_one_word() -> None:
    assert marker_conflict("Set disable_http_002", "never set_disable_http_002") == 0.0
    assert marker_conflict("Use DISABLE_HTTP_002", "not disable_http_002") == 1.0
