"""Phoenix shows why a loop stopped, and what it exports is the loop again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("phoenix", reason="runs in its own environment: make test-integrations")

from tests.integrations.traced import check_the_same, serving, until_there, watched


def test_a_stopped_loop_goes_to_phoenix_and_back(tmp_path: Path) -> None:
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
        file = tmp_path / "spans.json"
        file.write_text(json.dumps(spans.get_spans(project_identifier="default", limit=1000)))
    check_the_same(file, record)
