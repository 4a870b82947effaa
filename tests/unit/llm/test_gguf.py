from __future__ import annotations

import struct
from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.llm.gguf import GgufFacts, read_facts


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def header(*, template: bool) -> bytes:
    """A header written from the specification: magic, version, counts, then key, type, value."""
    pairs = [
        string("general.name") + struct.pack("<I", 8) + string("Tiny Ünit"),
        string("general.quantization_version") + struct.pack("<II", 4, 2),
        string("llama.context_length") + struct.pack("<II", 4, 4096),
        string("tokenizer.ggml.tokens")
        + struct.pack("<IIQ", 9, 8, 3)
        + b"".join(map(string, ["a", "tokenizer.chat_template", ""])),
        string("tokenizer.ggml.scores") + struct.pack("<IIQ3f", 9, 6, 3, 0.0, -1.0, 2.0),
        string("nested") + struct.pack("<IIQ", 9, 9, 1) + struct.pack("<IQ2B", 0, 2, 7, 8),
        string("flag") + struct.pack("<I?", 7, True),
        string("general.license") + struct.pack("<I", 8) + string("mit"),
    ]
    if template:
        pairs.append(string("tokenizer.chat_template") + struct.pack("<I", 8) + string("{{ m }}"))
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


@pytest.mark.parametrize("template", [True, False])
def test_facts(tmp_path: Path, template: bool) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(template=template))
    assert read_facts(path) == GgufFacts(
        name="Tiny Ünit", licence="mit", has_chat_template=template, context_length=4096
    )


def test_every_cut_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    whole = header(template=True)
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match=r"m\.gguf"):
            read_facts(path)


def test_other_files_and_no_file(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello, this is no model")
    with pytest.raises(DataError, match=r"not a GGUF file: it starts with b'hell'"):
        read_facts(path)
    with pytest.raises(UsageError, match="no model file"):
        read_facts(tmp_path / "nothing.gguf")
