"""MLflow shows why a loop stopped, and what it exports is the loop again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import suffice

pytest.importorskip("mlflow", reason="runs in its own environment: make test-integrations")

from tests.integrations.traced import check_the_same, serving, until_there, watched


def test_a_stopped_loop_goes_to_mlflow_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_snippet: Callable[..., dict[str, Any]]
) -> None:
    monkeypatch.chdir(tmp_path)
    suffice.save_policy(suffice.Rule("answer_stable"), "policy.json", max_rounds=2)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    import mlflow

    words = ("-m", "mlflow", "server", "--host", "127.0.0.1", "--port", "PORT")
    store = ("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--workers", "1")
    with serving(tmp_path, "/health", *words, *store) as url:
        mlflow.set_tracking_uri(url)
        experiment = mlflow.set_experiment("loops").experiment_id
        record = watched(url, tmp_path, {"x-mlflow-experiment-id": experiment})
        client = mlflow.MlflowClient(url)
        (trace,) = until_there(lambda: client.search_traces(locations=[experiment]))
        (stop,) = [span for span in trace.data.spans if span.name == "decide: stop"]
        assert stop.outputs.startswith("stop: answer_stable holds at round 3")
        assert stop.span_type == "EVALUATOR"
        file = tmp_path / "traces.json"
        file.write_text(trace.to_json())
        made = run_snippet("mlflow.md#Send", **{"http://localhost:5000": url})
        with made["watch"] as watch, watch.question("Where?") as loop:
            loop.observe(answer="Oslo", passages=["Oslo lies on a fjord."])
            loop.observe(answer="Oslo", passages=["Oslo is the capital."])
        made["provider"].shutdown()
        until_there(lambda: len(client.search_traces(locations=[experiment])) == 2)
        run_snippet("mlflow.md#Back to a record")
    check_the_same(file, record)
    suffice.traces.import_("traces.jsonl", "both", format="otlp")
    assert suffice.read("both").n_questions == 2
