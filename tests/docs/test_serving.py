"""What ``docs/serving.md`` shows of the service runs against one."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving import listening, service

from suffice.loops.ranked import CumulativeSettings
from suffice.serve.service_settings import load_settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8642/v1"

pytest.importorskip("openai")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(service(policies={"default": CumulativeSettings.default_rule})) as base:
        yield base


def test_the_client_of_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = re.findall(
        r"^```py\n(from openai.*?)^```.*?^```\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL
    )[0]
    exec(compile(code.replace(SHOWN, url), "serving.md", "exec"), {})
    assert capsys.readouterr().out == printed.replace("Skien ", "Skien, Norway ", 1)


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_curl_lines(url: str) -> None:
    lines = re.findall(r"^curl .*$", PAGE, re.MULTILINE)
    said = [
        subprocess.run(
            shlex.split(line.replace(SHOWN, url)), capture_output=True, text=True, check=True
        ).stdout
        for line in lines
    ]
    assert '"suffice/default"' in said[0]
    assert "x-suffice-stopped-by: policy" in said[1]
    assert said[2].endswith("data: [DONE]\n\n")


def test_the_settings_of_the_page(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text(re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[0])
    settings = load_settings(file)
    assert list(settings.policies) == ["careful", "quick"]
    assert settings.answers.loop == {"prompt": "no-confidence"}
    assert settings.limits.questions == 64
