"""A chat template is somebody else's program: its errors are named, its loops are ended, nothing gets out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hacrl.agents import chat_template
from hacrl.agents.rendering import Rendering
from hacrl.types import Prompt
from helpers_sharing import byte_level_bpe

MESSAGES = [{"role": "user", "content": "hello"}]


def render(template: object, **variables: object) -> str:
    return chat_template.render(template, MESSAGES, variables)


def test_the_text_is_that_of_transformers() -> None:
    tok = byte_level_bpe()
    tok.chat_template = "{{ eos_token }}{{ date }}{{ messages | tojson }}{{ add_generation_prompt }}\n\u2028é"
    expected = tok.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True, date="1 May")
    assert (
        chat_template.render(tok.chat_template, MESSAGES, {**tok.special_tokens_map, "date": "1 May"})
        == expected
    )


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 7 ** (10 ** 9) }}",
    ],
    ids=["loops", "one operation"],
)
def test_what_does_not_end_is_stopped_and_the_next_prompt_is_rendered(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert render("{{ messages[0].content }}") == "hello"  # the process is there
    with monkeypatch.context() as patch:
        patch.setattr(chat_template, "DEADLINE", 0.5)
        with pytest.raises(chat_template.TemplateFailed, match=r"did not end within 0\.5 seconds"):
            render(template)
    assert render("{{ messages[0].content }}") == "hello"


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('no \x1b[31msystem\x07 role\n') }}", r"^no \\x1b\[31msystem\\x07 role\\n$"),
        ("{{ raise_exception('x' * 5000) }}", r"^x{300}\.\.\.$"),
        ("{% for %}", "TemplateSyntaxError"),
        ("{{ messages[5].content.x }}", "UndefinedError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ range(10 ** 9) }}", "OverflowError: Range too big"),
        ("{{ 'x' * 10 ** 10 }}", "MemoryError"),
        ("{{ 'x' * 10 ** 8 }}", "it wrote 100000000 characters, more than 50000000"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{{ " + "(" * 5000 + " }}", "Error"),
        (5, "Error"),
        (["{{ 1 }}"], "Error"),
    ],
)
def test_errors_are_named_and_safe_to_print(template: object, message: str) -> None:
    with pytest.raises(chat_template.TemplateFailed, match=message) as error:
        render(template)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "attack",
    [
        "cycler.__init__.__globals__.os.system(command)",
        "messages.__class__.__base__.__subclasses__()",
        "messages.append.__self__.__class__.__mro__",
        "('{0.__class__.__init__.__globals__}' | string).format(namespace)",
        "''.__class__.__mro__[1].__subclasses__()",
        "raise_exception.__globals__['__builtins__']",
        "strftime_now.__globals__.__builtins__.open(path, 'w')",
        "lipsum.__globals__.os.system(command)",
        "self._TemplateReference__context.environment.from_string(command)",
        "(messages | attr('__class__') | attr('__base__')).__subclasses__()",
        "namespace(__class__=1)",
        "messages.append(1)",
    ],
)
def test_the_sandbox_is_not_left(attack: str, tmp_path: Path) -> None:
    planted = tmp_path / "planted"
    with pytest.raises(chat_template.TemplateFailed, match=r"SecurityError|UndefinedError"):
        render(f"{{{{ ({attack}) ~ '' }}}}", command=f"touch {planted}", path=str(planted))
    assert not planted.exists()


def test_a_killed_process_is_named_and_started_again() -> None:
    render("")
    renderer = chat_template._renderer
    assert renderer is not None
    os.kill(renderer._process.pid, 9)
    with pytest.raises(chat_template.TemplateFailed, match="ended with exit code -9"):
        render("")
    assert render("{{ messages[0].role }}") == "user"


def test_a_forked_process_has_a_renderer_of_its_own() -> None:
    assert render("a") == "a"
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if chat_template._renderer is None and render("b") == "b" else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert render("c") == "c"


def test_the_message_names_agent_and_prompt() -> None:
    tok = byte_level_bpe()
    tok.chat_template = "{{ 1 / 0 }}"
    with pytest.raises(ValueError, match="prompt 'p7': the chat template of agent 'ada' refuses it: ZeroDiv"):
        Rendering(tok, agent="ada").encode_prompt(Prompt("p7", "a"))
    tok.chat_template = {"tool_use": "{{ 1 }}"}
    with pytest.raises(
        ValueError, match="prompt 'p8': the chat template of agent 'ada' refuses it: This model"
    ):
        Rendering(tok, agent="ada").encode_prompt(Prompt("p8", "a"))
    with pytest.raises(chat_template.TemplateFailed, match="its variables are not plain JSON values"):
        render("", x={1})
