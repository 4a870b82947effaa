"""Record with a model, replay rules on the record, and read the comparison in Python."""

from __future__ import annotations

import tempfile
from pathlib import Path

import suffice
from suffice.datasets.known_datasets import load
from suffice.evaluation.replay.results import ReplayResult
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.testing.models import ScriptedModel

RULES = ("answer_stable", "at_least(2, answer_stable, overlap > 0.2, round >= 4)")


def main() -> ReplayResult:
    with tempfile.TemporaryDirectory() as folder:
        traces = Path(folder) / "traces"
        record_examples(
            load("generated", limit=30),
            ScriptedModel(),  # any ChatModel: EmbeddedModel.load(), OpenAICompatibleModel(url), ...
            traces,
            Recording(dataset="generated", settings=CumulativeSettings(rounds=5)),
            on_progress=lambda _: None,
        )
        compared = suffice.replay(traces, ["fixed-2", "fixed-5", "tasr-corrected"], rules=RULES)
    print(compared.text())
    return compared


if __name__ == "__main__":
    main()
