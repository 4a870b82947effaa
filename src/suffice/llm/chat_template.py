"""A chat as the text that a model was trained on, by the template that its file carries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

from suffice._optional import require
from suffice.errors import BackendError
from suffice.protocols import Message

CHATML = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}{%- endif -%}"
)
"""What llama.cpp uses where a file has no template."""


def render_chat(template: str, messages: Sequence[Message], *, begin: str, end: str) -> str:
    """The prompt at whose end the model answers.

    ``begin`` and ``end`` are how the model's tokens of these kinds are written. The template is run in
    Jinja's sandbox, as the file is somebody else's.

    Raises
    ------
    MissingExtra
        When the extra ``embedded`` is not installed.
    BackendError
        When the template cannot be read or refuses the messages.
    """
    jinja2 = require("jinja2", extra="embedded", purpose="A model with a chat template")
    try:
        text: str = _compiled(template).render(
            messages=[{"role": message.role, "content": message.content} for message in messages],
            add_generation_prompt=True,
            bos_token=begin,
            eos_token=end,
        )
    except (jinja2.TemplateError, TypeError, ValueError, RecursionError) as error:
        raise BackendError(f"the model's chat template refuses this chat: {error}") from error
    return text


@lru_cache(maxsize=8)
def _compiled(template: str) -> Any:
    sandbox = require("jinja2.sandbox", extra="embedded", purpose="A model with a chat template")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **how: json.dumps(
        value, ensure_ascii=False, **how
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
