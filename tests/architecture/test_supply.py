"""What is run, read and installed: no pickle, no text that becomes code, every pinned package known."""

from __future__ import annotations

import ast
import io
import json
import pickle
import re
import zipfile
from pathlib import Path

import pytest
from tools.supply import affected, licence, page, pins, stated_pins

import suffice

ROOT = Path(suffice.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
UNSAFE = frozenset(
    {"cPickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve", "yaml"}
)
RUNS_TEXT = frozenset({"__import__", "eval", "exec"})
# it asks whether a work function can be sent to another process, and reads nothing back
ASKS_ONLY = {"measures/shards.py": {"pickle.dumps", "pickle.PicklingError"}}
LOADS_A_NETWORK = {
    "CrossEncoder": "model_kwargs",
    "SentenceTransformer": "model_kwargs",
    "AutoModel.from_pretrained": "use_safetensors",
}
WORDS = {
    r"(np|torch)\.load",
    "from_pretrained",
    "read_pickle",
    "trust_remote_code",
    "shell",
    "system",
}
SUSPECT = re.compile(
    rf"\b({'|'.join(UNSAFE | RUNS_TEXT | WORDS)}|CrossEncoder|SentenceTransformer)\b"
)
MUST_SAY = {"np.load": ("allow_pickle", False), "torch.load": ("weights_only", True)}


def unsafe(path: str, source: str) -> list[str]:
    """What a module does that could run foreign bytes or text."""
    allowed = ASKS_ONLY.get(path, set())
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import) and not allowed:
            found += [alias.name for alias in node.names if alias.name.partition(".")[0] in UNSAFE]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [node.module] if node.module.partition(".")[0] in UNSAFE else []
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            what = f"{node.value.id}.{node.attr}"
            unknown = node.value.id in UNSAFE and what not in allowed
            found += [what] if unknown or node.attr == "read_pickle" else []
        elif isinstance(node, ast.Call):
            found += unsafe_call(node)
    return found


def unsafe_call(call: ast.Call) -> list[str]:
    what, words = ast.unparse(call.func), {word.arg: word.value for word in call.keywords}
    wanted = next((word for end, word in LOADS_A_NETWORK.items() if what.endswith(end)), None)
    if wanted is not None and what[0].islower() and wanted not in words:
        return [what]
    name, value = MUST_SAY.get(what, ("", None))
    said = words.get(name)
    if name and not (isinstance(said, ast.Constant) and said.value is value):
        return [what]
    if what in RUNS_TEXT or "trust_remote_code" in words or what == "os.system":
        return [what]
    shell = words.get("shell")
    return [] if shell is None or ast.unparse(shell) == "False" else [what]


def test_nothing_runs_what_it_reads() -> None:
    found = {}
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        if SUSPECT.search(source):
            name = path.relative_to(ROOT).as_posix()
            found[name] = unsafe(name, source)
    assert {name: what for name, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from joblib import load",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "torch.load(file)",
        "pandas.read_pickle(file)",
        "eval(rule)",
        "exec(rule)",
        "module.SentenceTransformer(name)",
        "transformers.AutoModel.from_pretrained(name)",
        "loader.load(name, trust_remote_code=True)",
        "subprocess.run(line, shell=True)",
    ],
)
def test_what_would_is_found(source: str) -> None:
    assert unsafe("a.py", source) != []
    assert unsafe("measures/shards.py", "import pickle; pickle.loads(b'')") == ["pickle.loads"]


def test_no_pickle_is_shipped() -> None:
    for path in ROOT.rglob("*"):
        if path.is_file() and path.suffix not in {".py", ".pyc"}:
            with pytest.raises((pickle.UnpicklingError, EOFError, ValueError, KeyError)):
                pickle.loads(path.read_bytes())


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

    hits = [
        advisory(1, versions=["1.4"]),
        advisory(2, **between({"introduced": "0"}, {"fixed": "1.10"})),
        advisory(3, **between({"introduced": "1.2"}, {"last_affected": "1.4"})),
    ]
    misses = [
        advisory(4, versions=["1.3"]),
        advisory(5, **between({"introduced": "0"}, {"fixed": "1.4"})),
        advisory(6, **between({"introduced": "1.5"})),
        {**advisory(7, versions=["1.4"]), "withdrawn": "2026-01-01T00:00:00Z"},
    ]
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for entry in hits + misses:
            archive.writestr(f"{entry['id']}.json", json.dumps(entry))
            (tmp_path / f"{entry['id']}.json").write_text(json.dumps(entry), encoding="utf-8")
    (tmp_path / "all.zip").write_bytes(content.getvalue())
    told = [f"some-package 1.4: PYSEC-{number}" for number in (1, 2, 3)]
    pinned = {"some-package": "1.4", "other": "2.0"}
    assert affected(pinned, tmp_path) == affected(pinned, tmp_path / "all.zip") == told
