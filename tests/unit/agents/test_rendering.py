from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hacrl.agents.rendering import Rendering
from hacrl.recipe.agent_settings import PromptSettings
from hacrl.types import Prompt
from helpers_sharing import (
    FIXED_DATE,
    HARD_TEXTS,
    REAL,
    SMALL,
    byte_level_bpe,
    char_level,
    metaspace_bpe,
    real_tokenizer,
    rendering,
    tokenizer,
)

ALL = (*SMALL, *REAL)
EXACT = tuple(name for name in ALL if name != "char-level")


def special_ids(name: str) -> set[int]:
    """Computed from the tokenizer's files, independently of the code under test."""
    tok = tokenizer(name)
    return {i for i, token in tok.added_tokens_decoder.items() if token.special} | set(tok.all_special_ids)


@pytest.mark.parametrize("text", HARD_TEXTS)
@pytest.mark.parametrize("name", EXACT)
def test_a_response_is_preserved_exactly_and_contains_no_special_token(name: str, text: str) -> None:
    ids = rendering(name).encode_response(text)
    assert rendering(name).decode_response(ids) == text
    assert not special_ids(name).intersection(ids)


@pytest.mark.parametrize("name", EXACT)
def test_a_copy_in_another_process_writes_the_same_tokens(name: str) -> None:
    copied = pickle.loads(pickle.dumps(rendering(name)))
    for text in (*HARD_TEXTS, tokenizer(name).eos_token):
        assert copied.encode_response(text) == rendering(name).encode_response(text)
        prompt = Prompt("p", text)
        assert copied.encode_prompt(prompt) == rendering(name).encode_prompt(prompt)


@pytest.mark.parametrize("name", ["byte-level", "metaspace"])
@given(text=st.text(st.characters(exclude_characters="▁", exclude_categories=["Cs"])))
def test_any_unicode_response_is_preserved(name: str, text: str) -> None:
    assert rendering(name).decode_response(rendering(name).encode_response(text)) == text


@pytest.mark.parametrize("text", HARD_TEXTS)
@pytest.mark.parametrize("name", ALL)
def test_user_text_smuggles_no_special_token_into_a_prompt(name: str, text: str) -> None:
    """A prompt has the special tokens of the same prompt with harmless content, in the same order."""
    special = special_ids(name) - {tokenizer(name).unk_token_id}
    harmless = rendering(name).encode_prompt(Prompt("harmless", "word"))
    ids = rendering(name).encode_prompt(Prompt("hard", text))
    assert [i for i in ids if i in special] == [i for i in harmless if i in special]


@pytest.mark.parametrize("text", [text for text in HARD_TEXTS if "<" in text])
@pytest.mark.parametrize("name", ["byte-level", "qwen3", "llama3_2", "gemma3"])
def test_look_alikes_stay_readable_in_a_chat_prompt(name: str, text: str) -> None:
    tok = tokenizer(name)
    messages = [{"role": "user", "content": text}]
    expected = tok.apply_chat_template(messages, add_generation_prompt=True, tokenize=False, **FIXED_DATE)
    ids = rendering(name).encode_prompt(Prompt("p", tuple(messages)))
    assert tok.decode(ids) == expected


@pytest.mark.parametrize("name", ["byte-level", "qwen3", "llama3_2", "gemma3"])
def test_an_ordinary_chat_prompt_has_exactly_the_tokens_of_transformers(name: str) -> None:
    messages = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": " What is $2^{10}$? "},
    )
    expected = tokenizer(name).apply_chat_template(
        list(messages), add_generation_prompt=True, return_dict=False, **FIXED_DATE
    )
    assert list(rendering(name).encode_prompt(Prompt("p", messages))) == expected


@pytest.mark.parametrize("name", ["byte-level", "qwen3", "llama3_2", "gemma3"])
def test_plain_text_is_one_user_message_where_there_is_a_chat_template(name: str) -> None:
    chat = Prompt("p", ({"role": "user", "content": "2+2?"},))
    assert rendering(name).encode_prompt(Prompt("p", "2+2?")) == rendering(name).encode_prompt(chat)


@pytest.mark.parametrize("name", ["metaspace", "char-level", "llama2"])
def test_plain_text_is_written_as_the_tokenizer_writes_it_where_there_is_no_template(name: str) -> None:
    assert list(rendering(name).encode_prompt(Prompt("p", "a 1"))) == tokenizer(name).encode("a 1")


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("text", ["a", "", "<s>a", "<|begin_of_text|>a", "<bos>a"])
def test_one_bos_where_the_tokenizer_has_one_and_none_elsewhere(name: str, text: str) -> None:
    tok = tokenizer(name)
    ids = rendering(name).encode_prompt(Prompt("p", text))
    assert ids.count(tok.bos_token_id) == (0 if tok.bos_token_id is None else 1)
    assert tok.bos_token_id is None or ids[0] == tok.bos_token_id


@pytest.mark.parametrize(("written", "expected"), [(0, 1), (1, 1), (2, 1)])
def test_a_template_that_writes_no_bos_or_two_still_gives_one(written: int, expected: int) -> None:
    tok = metaspace_bpe()
    tok.chat_template = "{{ bos_token }}" * written + "{{ messages[0].content }}"
    ids = Rendering(tok).encode_prompt(Prompt("p", "a"))
    assert ids.count(tok.bos_token_id) == expected
    assert ids[0] == tok.bos_token_id


def test_no_bos_for_a_tokenizer_that_has_one_but_does_not_write_it() -> None:
    tok = byte_level_bpe()
    tok.bos_token = "<|endoftext|>"
    assert tok.bos_token_id not in Rendering(tok).encode_prompt(Prompt("p", "a"))


def test_a_leading_blank_of_a_llama_2_response_belongs_to_it() -> None:
    tok = metaspace_bpe()
    with_blank, without = tok.convert_tokens_to_ids(["▁a", "a"])
    assert Rendering(tok).encode_response(" a") == (with_blank,)
    assert Rendering(tok).encode_response("a") == (without,)
    assert Rendering(tok).decode_response([with_blank, tok.eos_token_id]) == " a"


def test_added_tokens_that_are_not_special_stay_one_token() -> None:
    tok = byte_level_bpe()
    assert Rendering(tok).encode_response("<think>") == (tok.convert_tokens_to_ids("<think>"),)


def test_what_a_tokenizer_cannot_write_is_visible_as_drift() -> None:
    exact = Rendering(char_level())
    assert exact.decode_response(exact.encode_response("1+1=2")) == "1+1=2"
    assert exact.decode_response(exact.encode_response("1π1=1")) == "11=1"


def test_a_special_token_spelt_as_an_ordinary_character_never_comes_from_text() -> None:
    tok = char_level(alphabet="ab$")
    tok.eos_token = "$"
    rendering = Rendering(tok)
    assert rendering.decode_response(rendering.encode_response("a$b")) == "ab"
    with pytest.raises(ValueError, match=r"prompt 'p7' contains '\$'"):
        rendering.encode_prompt(Prompt("p7", "a$b"))


def test_every_given_eos_counts_as_special() -> None:
    tok = byte_level_bpe()
    think = tok.convert_tokens_to_ids("<think>")
    rendering = Rendering(tok, eos_ids=[think, tok.eos_token_id])
    assert rendering.eos_ids == (think, tok.eos_token_id)
    assert rendering.eos_id == tok.eos_token_id
    assert think not in rendering.encode_response("<think>")
    assert rendering.decode_response([*rendering.encode_response("a<think>"), think]) == "a<think>"


def test_placeholders_survive_any_order_and_neighbours() -> None:
    tok = byte_level_bpe()
    tok.chat_template = "{{ messages[1].content }}|{{ messages[0].content }}"
    system, user = "0<|im_end|>0<|im_start|>1", "<|im_end|>0<|im_end|><|im_end|>1\ufdd0"
    prompt = Prompt("p", ({"role": "system", "content": system}, {"role": "user", "content": user}))
    assert Rendering(tok).decode_response(Rendering(tok).encode_prompt(prompt)) == f"{user}|{system}"


def test_errors_name_the_prompt_and_the_fix() -> None:
    tok = byte_level_bpe()
    tok.chat_template = "{{ raise_exception('no system role') }}"
    with pytest.raises(ValueError, match="prompt 'p1': the chat template of '' refuses it: no system role"):
        Rendering(tok).encode_prompt(Prompt("p1", "a"))
    with pytest.raises(ValueError, match=r"prompt 'p2' is a list of chat messages.*no chat template"):
        Rendering(char_level()).encode_prompt(Prompt("p2", ({"role": "user", "content": "a"},)))
    with pytest.raises(ValueError, match=r"prompt 'p3': role 'user<\|im_end\|>' contains a special token"):
        Rendering(byte_level_bpe()).encode_prompt(Prompt("p3", ({"role": "user<|im_end|>", "content": "a"},)))


def test_a_tokenizer_without_eos_is_refused() -> None:
    tok = char_level()
    tok.eos_token = None
    with pytest.raises(ValueError, match=r"has no EOS token.*pass eos_ids"):
        Rendering(tok)
    assert Rendering(tok, eos_ids=[2]).eos_id == 2
    with pytest.raises(ValueError, match=r"eos_ids: .* has no token 999"):
        Rendering(tok, eos_ids=[2, 999])


@pytest.mark.parametrize("name", ["byte-level", "gemma3"])
def test_the_table_of_added_tokens_is_not_made_once_per_token(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma has 6,254 of them, and making the table takes 12 milliseconds."""
    tok = tokenizer(name)
    tables, table = [], type(tok).added_tokens_decoder
    monkeypatch.setattr(
        type(tok), "added_tokens_decoder", property(lambda self: tables.append(1) or table.fget(self))
    )
    Rendering(tok).encode_prompt(Prompt("p", "one and one <eos>"))
    assert 0 < len(tables) <= 10


def chatted(prompt: Prompt, **settings: Any) -> str:
    """The prompt as a model with ChatML sees it."""
    tok = byte_level_bpe()
    return str(tok.decode(Rendering(tok, PromptSettings(**settings)).encode_prompt(prompt)))


def test_an_agents_own_template_goes_around_the_prompt() -> None:
    template = "1+1=2, {prompt}="
    plain = Rendering(char_level(), PromptSettings(prompt_template=template))
    assert plain.encode_prompt(Prompt("p", "2+3")) == Rendering(char_level()).encode_prompt(
        Prompt("p", "1+1=2, 2+3=")
    )
    assert chatted(Prompt("p", "a"), prompt_template="Q: {prompt} {x}") == (
        "<|im_start|>user\nQ: a {x}<|im_end|>\n<|im_start|>assistant\n"
    )
    messages = tuple({"role": role, "content": role} for role in ("user", "assistant", "user"))
    assert chatted(Prompt("p", messages), prompt_template="({prompt})") == (
        "<|im_start|>user\nuser<|im_end|>\n<|im_start|>assistant\nassistant<|im_end|>\n"
        "<|im_start|>user\n(user)<|im_end|>\n<|im_start|>assistant\n"
    )
    with pytest.raises(ValueError, match="prompt 'p' has no user message, which prompt_template"):
        chatted(Prompt("p", messages[1:2]), prompt_template="({prompt})")


def test_an_agents_system_prompt_replaces_that_of_the_prompt() -> None:
    asked = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"
    user = {"role": "user", "content": "a"}
    for prompt in (Prompt("p", "a"), Prompt("p", ({"role": "system", "content": "old"}, user))):
        assert chatted(prompt, system_prompt="new") == "<|im_start|>system\nnew<|im_end|>\n" + asked
    tok = byte_level_bpe()
    ids = Rendering(tok, PromptSettings(system_prompt="x<|im_end|>")).encode_prompt(Prompt("p", "a"))
    assert ids.count(tok.eos_token_id) == 2  # one for each message: its name in a text is only text


def test_template_variables_reach_the_template_and_survive_pickling() -> None:
    tok = byte_level_bpe()
    tok.chat_template = "{{ messages[0].content }}{% if not thinking %}!{% endif %}"
    for thinking, text in ((False, "a!"), (True, "a")):
        made = Rendering(tok, PromptSettings(template_variables={"thinking": thinking}))
        for encoder in (made, pickle.loads(pickle.dumps(made))):
            assert encoder.decode_response(encoder.encode_prompt(Prompt("p", "a"))) == text


def test_qwen3_without_thinking_gets_an_empty_thought() -> None:
    tok = real_tokenizer("qwen3")
    settings = PromptSettings(template_variables={"enable_thinking": False}, system_prompt="Be brief.")
    assert tok.decode(Rendering(tok, settings).encode_prompt(Prompt("p", "1+1?"))) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )


@pytest.mark.parametrize("settings", [{"system_prompt": "x"}, {"template_variables": {"x": 1}}])
def test_settings_for_a_chat_template_need_one(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))} is for a chat template.*prompt_template"):
        Rendering(char_level(), PromptSettings(**settings))


@pytest.mark.parametrize("template", ["no place", "{prompt} and {prompt}", ""])
def test_a_prompt_template_has_one_place_for_the_prompt(template: str) -> None:
    with pytest.raises(ValueError, match="prompt_template\n"):
        PromptSettings(prompt_template=template)


def test_without_chat_a_prompt_is_plain_text() -> None:
    assert chatted(Prompt("p", "2+3"), chat=False, prompt_template="Q: {prompt}\nA:") == "Q: 2+3\nA:"
    with pytest.raises(ValueError, match="list of chat messages, but chat is false: set it to true"):
        chatted(Prompt("p", ({"role": "user", "content": "2+3"},)), chat=False)
    with pytest.raises(ValueError, match="system_prompt is for a chat template, which chat: false turns off"):
        chatted(Prompt("p", "2+3"), chat=False, system_prompt="Be brief.")
