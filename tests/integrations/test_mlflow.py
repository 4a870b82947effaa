"""MLflow shows why a loop stopped, and what it exports is the loop again."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("mlflow", reason="runs in its own environment: make test-integrations")

from tests.integrations.traced import check_the_same, serving, until_there, watched


def test_a_stopped_loop_goes_to_mlflow_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    check_the_same(file, record)
