"""What is run, read and installed: no pickle, no text that becomes code, every pinned package known."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest
from tools.supply import affected, licence, page, pins, stated_pins

import suffice

ROOT = Path(suffice.__file__).parent
# ruff's rules S refuse eval, exec, shells and reading of pickles; these are what it does not know
UNSAFE = re.compile(
    r"np\.load\((?!.*allow_pickle=False)|torch\.load\((?!.*weights_only=True)|read_pickle|trust_remote_code"
    r"|import (?:cPickle|cloudpickle|dill|joblib|marshal|shelve|yaml)\b|pickle\.loads?\b"
    r"|\w\.(?:CrossEncoder|SentenceTransformer)\((?!.*model_kwargs)|Model\.from_pretrained\((?!.*use_safetensors)"
)


def unsafe(source: str) -> list[str]:
    """Calls, each on a line of its own, that could run foreign bytes or text."""
    joined = re.sub(r"(?<=[(,])\n\s*", "", source)
    return [hit.group() for hit in UNSAFE.finditer(joined)]


def test_nothing_runs_what_it_reads() -> None:
    found = {path: unsafe(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        *("import joblib", "pickle.loads(data)", "np.load(file)", "pandas.read_pickle(file)"),
        *(
            "np.load(file, allow_pickle=True)",
            "torch.load(file)",
            "module.SentenceTransformer(name)",
        ),
        "transformers.AutoModel.from_pretrained(\n    name\n)",
        "loader.load(name, trust_remote_code=True)",
    ],
)
def test_what_would_is_found(source: str) -> None:
    assert unsafe(source) != []


# --- what is installed ------------------------------------------------------------------------------


def test_the_page_has_every_pinned_package() -> None:
    assert stated_pins() == pins()
    assert "(core)" in page()
    assert licence("numpy").startswith("BSD-3-Clause")


def test_advisories_are_compared_with_what_is_pinned(tmp_path: Path) -> None:
    def advisory(number: int, **entry: object) -> dict[str, object]:
        package = {"ecosystem": "PyPI", "name": "Some_Package"}
        return {"id": f"PYSEC-{number}", "affected": [{"package": package, **entry}]}

    def between(*events: dict[str, str]) -> dict[str, object]:
        return {"ranges": [{"type": "ECOSYSTEM", "events": list(events)}]}

    advisories = [  # three that hit, and four that do not
        advisory(1, versions=["1.4"]),
        advisory(2, **between({"introduced": "0"}, {"fixed": "1.10"})),
        advisory(3, **between({"introduced": "1.2"}, {"last_affected": "1.4"})),
        advisory(4, versions=["1.3"]),
        advisory(5, **between({"introduced": "0"}, {"fixed": "1.4"})),
        advisory(6, **between({"introduced": "1.5"})),
        {**advisory(7, versions=["1.4"]), "withdrawn": "2026-01-01T00:00:00Z"},
    ]
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for entry in advisories:
            archive.writestr(f"{entry['id']}.json", json.dumps(entry))
            (tmp_path / f"{entry['id']}.json").write_text(json.dumps(entry), encoding="utf-8")
    told = [f"some-package 1.4: PYSEC-{number}" for number in (1, 2, 3)]
    pinned = {"some-package": "1.4", "other": "2.0"}
    assert affected(pinned, tmp_path) == affected(pinned, tmp_path / "all.zip") == told


def test_the_image_is_pinned_and_has_what_the_settings_of_its_page_need() -> None:
    source = ROOT.parents[1]
    lines = (source / "Dockerfile").read_text(encoding="utf-8").splitlines()
    bases = {line.split()[1] for line in lines if line.startswith("FROM ")}
    assert all(re.fullmatch(r"python:\d+\.\d+\.\d+-slim-[a-z]+", base) for base in bases)
    (installed,) = re.findall(r"-c constraints.txt '\.\[([a-z,]+)\]'", "\n".join(lines))
    assert {*installed.split(",")} >= {"serve", "otel", "postgres", "prices"}
    sent = (source / ".dockerignore").read_text(encoding="utf-8").split()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            assert {f"!{name}" for name in line.split()[1:-1]} <= {*sent}
