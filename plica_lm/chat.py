"""Chat templates: messages to the text that a model was trained to answer.

A template comes with a model and is not trusted: Jinja's sandbox runs it, without files, without
imports, and its result is bounded.

>>> said = [{"role": "user", "content": "Hello"}]
>>> rendered("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", said)
'<user>Hello'
>>> rendered("{{ raise_exception('no system') }}", said)
Traceback (most recent call last):
plica.runtime.error.InputError: The chat template refuses these messages: no system [input-value]
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from plica.runtime.error import Diagnostic, InputError

MAX_CHARACTERS: Final = 1 << 22
"""Characters that a template may make."""

Message = Mapping[str, Any]  # Any: a role, a content, and what templates of tools look for

PLAIN: Final = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""The template of a model that has none."""


def rendered(
    template: str | None, messages: Sequence[Message], *, bos: str = "", eos: str = "",
    answer: bool = True, **more: object,
) -> str:  # fmt: skip
    """The text of a chat, up to where the answer begins."""
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    rules = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    rules.filters["tojson"] = lambda x, **how: json.dumps(x, ensure_ascii=False, **how)
    rules.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now().strftime}
    parts, length = list[str](), 0
    try:
        made = rules.from_string(template or PLAIN).generate(
            messages=messages, bos_token=bos, eos_token=eos, add_generation_prompt=answer, **more
        )
        for part in made:
            parts.append(part)
            if (length := length + len(part)) > MAX_CHARACTERS:
                _refuse(f"it makes more than {MAX_CHARACTERS} characters")
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        # Whatever an untrusted template does wrong is said of the template.
        _refuse(str(error))
    return "".join(parts)


def _refuse(why: str) -> NoReturn:
    message = f"The chat template refuses these messages: {why}"
    raise InputError(Diagnostic("input-value", message))
