"""What names a Ray cluster; the cluster itself is tried in tests/integrations."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.integrations.ray import ray_address


@pytest.mark.parametrize(
    "address",
    ["", "auto", "local", "10.0.0.1:6379", "first:6379", "ray://first:10001", "[::1]:6379"],
)
def test_addresses(address: str) -> None:
    assert ray_address(address) == address


@pytest.mark.parametrize(
    "word",
    ["traces", "traces/", "first", "first:port", "http://first:80", "first:99999", "a/b:1/c"],
)
def test_a_record_after_the_option_is_not_taken_for_an_address(word: str) -> None:
    with pytest.raises(UsageError, match="--ray"):
        ray_address(word)
