"""Phoenix shows why a loop stopped, and what it exports is the loop again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suffice

pytest.importorskip("phoenix", reason="runs in its own environment: make test-integrations")

from tests.integrations.traced import check_the_same, serving, until_there, watched


def test_a_stopped_loop_goes_to_phoenix_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_snippet: Callable[..., dict[str, Any]]
) -> None:
    from phoenix.client import Client

    settings = {
        "PHOENIX_WORKING_DIR": str(tmp_path),
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": "PORT",
        "PHOENIX_GRPC_PORT": "0",
    }
    with serving(tmp_path, "/healthz", "-m", "phoenix.server.main", "serve", **settings) as url:
        record = watched(url, tmp_path)
        spans = Client(base_url=url).spans

        def stops() -> list[str]:
            frame = spans.get_spans_dataframe(project_identifier="default")
            return [] if len(frame) < 10 else list(frame[frame["name"] == "decide: stop"].index)

        (stop,) = until_there(stops)
        frame = spans.get_spans_dataframe(project_identifier="default")
        row = frame.loc[stop]
        assert row["span_kind"] == "EVALUATOR"
        assert row["attributes.output.value"].startswith("stop: answer_stable holds at round 3")
        kinds = sorted(frame["span_kind"])
        assert kinds == ["AGENT"] + ["EVALUATOR"] * 3 + ["LLM"] * 3 + ["RETRIEVER"] * 3
        file = tmp_path / "first.json"
        file.write_text(json.dumps(spans.get_spans(project_identifier="default", limit=1000)))
        monkeypatch.chdir(tmp_path)
        suffice.save_policy(suffice.Rule("answer_stable"), "policy.json", max_rounds=2)
        yours = (("my_search", lambda asked: [asked]), ("my_answer", lambda passages: "Oslo"))
        made = run_snippet("phoenix.md#Send", *yours, **{"http://localhost:6006": url})
        made["watch"].close()
        made["provider"].shutdown()
        until_there(
            lambda: "loops" in [one["name"] for one in Client(base_url=url).projects.list()]
        )
        until_there(lambda: len(spans.get_spans(project_identifier="loops", limit=1000)) >= 5)
        run_snippet("phoenix.md#Back to a record", **{"Client()": f"Client(base_url={url!r})"})
    check_the_same(file, record)
    suffice.traces.import_("spans.json", "read", format="otlp")
    assert suffice.read("read").n_questions == 1
