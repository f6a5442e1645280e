"""Chat templates: messages to the text that a model was trained to answer.

A template comes with a model and is untrusted: Jinja's sandbox runs it, without files and imports,
and its output is bounded.

>>> said = [{"role": "user", "content": "Hello"}]
>>> rendered("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", said)
'<user>Hello'
>>> rendered("{{ raise_exception('no system') }}", said)
Traceback (most recent call last):
plica.runtime.error.InputError: messages: The chat template refuses them: no system [input-value]
  expected: messages in the order that the template is for
  found: others
  suggestion: Change the roles of the messages, or the template of the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NoReturn

from plica_lm.refusal import refusal
from plica_lm.value import TEXT, Value, check, is_a

MAX_CHARACTERS: Final = 1 << 22  # characters that a template may make

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

    parts, length = list[str](), 0
    try:
        made = (
            _sandbox()
            .from_string(template or PLAIN)
            .generate(
                messages=messages,
                bos_token=bos,
                eos_token=eos,
                add_generation_prompt=answer,
                **more,
            )
        )
        for part in made:
            parts.append(part)
            if (length := length + len(part)) > MAX_CHARACTERS:
                _refuse(f"it makes more than {MAX_CHARACTERS} characters")
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        # Whatever an untrusted template does wrong is said of the template.
        _refuse(str(error))
    return "".join(parts)


def check_template(template: str | None) -> None:
    """Refuse a template that is not Jinja."""
    import jinja2

    try:
        _sandbox().parse(template or PLAIN)
    except jinja2.TemplateSyntaxError as error:
        raise refusal("bad-model", "The chat template is not Jinja.", "a Jinja template",
                      f"line {error.lineno}: {error.message}",
                      "Correct the template of the model, or remove it.") from None  # fmt: skip


def _sandbox() -> Any:  # Any: a jinja2.Environment, which is imported late
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    rules = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    rules.filters["tojson"] = lambda x, **how: json.dumps(x, ensure_ascii=False, **how)
    rules.globals |= {"raise_exception": _refuse, "strftime_now": datetime.now().strftime}
    return rules


def _refuse(why: str) -> NoReturn:
    raise refusal("input-value", f"The chat template refuses them: {why}",
                  "messages in the order that the template is for", "others",
                  "Change the roles of the messages, or the template of the model.",
                  at="messages")  # fmt: skip


_LIST: Final = Value((list, tuple), "a list of at least one message", bool)
_MESSAGE: Final = Value((Mapping,), "an object with role and content")
_PART: Final = Value((Mapping,), '{"type": "text", "text": …}', lambda part: (
    part.get("type") == "text" and set(part) == {"type", "text"} and is_a(part["text"], TEXT)
))  # fmt: skip
ROLES: Final = ("system", "user", "assistant", "tool")
FIELDS: Final[Mapping[str, Value]] = {
    "role": Value((str,), "one of " + ", ".join(ROLES), ROLES.__contains__),
    "content": Value((str, list), "text, or a list of text parts", lambda content: (
        is_a(content, TEXT) if isinstance(content, str) else all(
            is_a(part, _PART) for part in content))),
    "name": TEXT,
}  # fmt: skip
"""The fields of a message; the name is optional."""


def checked(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as templates take them: text parts are joined, all else is refused.

    >>> checked([{"role": "user", "content": [{"type": "text", "text": "Hi"}]}])
    [{'role': 'user', 'content': 'Hi'}]
    """
    check("messages", messages, _LIST, at="messages")
    found = []
    for at, message in enumerate(messages):
        here = f"messages[{at}]"
        check(here, message, _MESSAGE, at="messages")
        for name in message:
            if name not in FIELDS:
                raise refusal("input-value", f"{here} has the unknown field {name!r}.",
                              ", ".join(FIELDS), name, "Remove it.", at="messages")  # fmt: skip
        for name, value in FIELDS.items():
            if name in message or name != "name":
                check(f"{here}.{name}", message.get(name), value, at="messages")
        content = message["content"]
        if not isinstance(content, str):
            content = "".join([part["text"] for part in content])
        found.append({**message, "content": content})
    return found
