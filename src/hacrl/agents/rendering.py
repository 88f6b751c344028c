"""Text <-> tokens for one tokenizer: chat template, BOS and EOS rules, exact responses.

A prompt is encoded the way the model is used after training: with its own chat template and normalisation. A
response is encoded *exactly*: what a peer re-encodes has to be the text that was verified, so nothing is
normalised, stripped or prefixed. In both, the name of a special token inside a text is only text.

Known limits:

- Only tokens flagged as special in the vocabulary (and the given EOS tokens) are held back. Other added
  tokens, such as Qwen3's `<think>`, are ordinary vocabulary.
- Message roles are trusted: a template that builds a special token out of a role is not guarded.
- When a chat prompt contains a look-alike, the text between the template's special tokens is encoded piece by
  piece. That gives the same tokens for all pre-tokenizers but `Metaspace(prepend_scheme="first")`, which then
  puts its blank in front of every piece.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from hacrl.agents import chat_template
from hacrl.recipe.agent_settings import PLACEHOLDER, PromptSettings
from hacrl.types import Message, Prompt

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

_NONCHARACTERS = tuple(chr(code) for code in range(0xFDD0, 0xFDF0))
"""Code points Unicode reserves for internal use: ordinary text does not contain them."""


def chat_messages(prompt: Prompt, prompting: PromptSettings) -> list[Message]:
    """The prompt as chat messages, with the agent's prompt template and system prompt."""
    text = prompt.text
    user: Message = {"role": "user", "content": str(text)}
    messages = [user] if isinstance(text, str) else list(text)
    if prompting.prompt_template is not None:
        users = [place for place, message in enumerate(messages) if message["role"] == "user"]
        if not users:
            raise ValueError(f"prompt {prompt.id!r} has no user message, which prompt_template goes around")
        last = messages[users[-1]]
        messages[users[-1]] = {**last, "content": _around(last["content"], prompting)}
    if prompting.system_prompt is not None:
        others = messages[1:] if messages and messages[0]["role"] == "system" else messages
        messages = [{"role": "system", "content": prompting.system_prompt}, *others]
    return messages


def _around(text: str, prompting: PromptSettings) -> str:
    """The text in the agent's prompt template."""
    template = prompting.prompt_template
    return text if template is None else template.replace(PLACEHOLDER, text)


class Rendering:
    """How one tokenizer encodes prompts and responses (`hacrl.types.Encoder`)."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        prompting: PromptSettings | None = None,
        *,
        eos_ids: Sequence[int] | None = None,
        agent: str = "",
    ) -> None:
        """`eos_ids`: every token that ends a response, if the model knows more than the tokenizer's own EOS.

        `prompting.template_variables` are passed to the chat template: `{"enable_thinking": False}` for
        Qwen3, `{"date_string": "26 Jul 2024"}` for Llama-3.2, whose prompts would otherwise change from day
        to day. `agent` is named in messages.
        """
        self._prompting = _checked_prompting(tokenizer, prompting or PromptSettings())
        self.eos_ids = _checked_eos(tokenizer, eos_ids)
        own_eos = tokenizer.eos_token_id
        self.eos_id: int = own_eos if own_eos in self.eos_ids else self.eos_ids[0]
        self._tokenizer = tokenizer
        self._agent = agent
        self._bos_id: int | None = tokenizer.bos_token_id
        self._adds_bos = self._bos_id is not None and tokenizer.encode("a")[:1] == [self._bos_id]
        self._special_ids = _special_ids(tokenizer, self.eos_ids)
        self._special_pattern = _special_pattern(tokenizer, self._special_ids)
        self._exact = _exact_copy(tokenizer.backend_tokenizer, self.eos_ids)

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuilt, not copied: a copied tokenizer would read special tokens' names in texts as tokens."""
        make = partial(Rendering, self._tokenizer, self._prompting, eos_ids=self.eos_ids, agent=self._agent)
        return make, ()

    @cached_property
    def vocabulary(self) -> str:
        """A digest of the tokens and their ids: agents with the same one read each other's tokens."""
        tokens = sorted(self._tokenizer.get_vocab().items())
        return hashlib.blake2b(repr(tokens).encode(), digest_size=8).hexdigest()

    @property
    def has_chat_template(self) -> bool:
        """Whether prompts go through a chat template; a plain-text prompt is then one user message."""
        return self._prompting.chat and self._tokenizer.chat_template is not None

    @property
    def start_ids(self) -> tuple[int, ...]:
        """What comes before plain text: BOS if the tokenizer writes one, or else EOS."""
        return (self._bos_id if self._adds_bos and self._bos_id is not None else self.eos_id,)

    def encode_prompt(self, prompt: Prompt) -> tuple[int, ...]:
        """The prompt as the model sees it, with one BOS if the tokenizer or its template writes one."""
        if self.has_chat_template:
            ids = self._encode_chat(prompt)
        elif isinstance(prompt.text, str):
            ids = self._encode_plain(_around(prompt.text, self._prompting), prompt)
        else:
            why = (
                f"the tokenizer {self._tokenizer.name_or_path!r} has no chat template: set one, or use"
                if self._prompting.chat
                else "chat is false: set it to true, or use"
            )
            raise ValueError(f"prompt {prompt.id!r} is a list of chat messages, but {why} plain-text prompts")
        return self._with_one_bos(ids)

    def encode_response(self, text: str) -> tuple[int, ...]:
        """A response's exact text, without EOS. `decode_response` differs where a token for it is missing."""
        return tuple(self._without_special(self._exact.encode(text, add_special_tokens=False).ids))

    def decode_response(self, token_ids: Sequence[int]) -> str:
        """The exact text of a response, special tokens left out; bytes that are not UTF-8 become U+FFFD."""
        text: str = self._exact.decode(self._without_special(token_ids), skip_special_tokens=False)
        return text

    def _without_special(self, token_ids: Sequence[int]) -> Sequence[int]:
        if self._special_ids.isdisjoint(token_ids):
            return token_ids
        return [i for i in token_ids if i not in self._special_ids]

    def _encode_chat(self, prompt: Prompt) -> list[int]:
        hidden, look_alikes = self._hide_look_alikes(chat_messages(prompt, self._prompting), prompt)
        rendered = self._apply_template(hidden, prompt)
        if not look_alikes:
            ids: list[int] = self._tokenizer.encode(rendered, add_special_tokens=False)
            return ids
        ids = []
        # re.split with one group: text and special tokens alternate.
        for index, piece in enumerate(self._special_pattern.split(rendered)):
            if index % 2:
                ids.append(self._tokenizer.convert_tokens_to_ids(piece.strip() or piece))
            elif piece:
                ids += self._encode_plain(_restore(piece, look_alikes), prompt)
        return ids

    def _hide_look_alikes(
        self, messages: Iterable[Message], prompt: Prompt
    ) -> tuple[list[dict[str, str]], dict[str, str]]:
        """Messages with every special token's name replaced by a placeholder, and what each stands for."""
        everything = "".join(text for message in messages for text in message.values())
        free = [mark for mark in _NONCHARACTERS if mark not in everything]
        if len(free) < 2:
            raise ValueError(f"prompt {prompt.id!r} uses all of U+FDD0 to U+FDEF: remove these noncharacters")
        look_alikes: dict[str, str] = {}

        def placeholder(match: re.Match[str]) -> str:
            key = f"{free[0]}{len(look_alikes)}{free[1]}"
            look_alikes[key] = match.group()
            return key

        hidden = []
        for message in messages:
            if self._special_pattern.search(message["role"]):
                raise ValueError(f"prompt {prompt.id!r}: role {message['role']!r} contains a special token")
            hidden.append(
                {key: self._special_pattern.sub(placeholder, text) for key, text in message.items()}
            )
        return hidden, look_alikes

    def _apply_template(self, messages: list[dict[str, str]], prompt: Prompt) -> str:
        try:
            template = self._tokenizer.get_chat_template()
            variables = {**self._tokenizer.special_tokens_map, **self._prompting.template_variables}
            return chat_template.render(template, messages, variables)
        except ValueError as error:
            owner = f"agent {self._agent!r}" if self._agent else repr(self._tokenizer.name_or_path)
            raise ValueError(
                f"prompt {prompt.id!r}: the chat template of {owner} refuses it: {error}"
            ) from error

    def _encode_plain(self, text: str, prompt: Prompt) -> list[int]:
        """Prompt text in which special tokens' names are only text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        smuggled = self._special_ids.intersection(ids) - {self._tokenizer.unk_token_id}
        if smuggled:
            names = self._tokenizer.convert_ids_to_tokens(sorted(smuggled))
            raise ValueError(
                f"prompt {prompt.id!r} contains {', '.join(map(repr, names))}, which the tokenizer "
                "can only write as a special token: reword the prompt"
            )
        return ids

    def _with_one_bos(self, ids: list[int]) -> tuple[int, ...]:
        bos = self._bos_id
        if bos is None:
            return tuple(ids)
        start = next((n for n, token in enumerate(ids) if token != bos), len(ids))
        return (bos, *ids[start:]) if start or self._adds_bos else tuple(ids)


def _checked_prompting(tokenizer: PreTrainedTokenizerFast, prompting: PromptSettings) -> PromptSettings:
    """The settings, unless they are for a chat template that the tokenizer does not have."""
    needing = [key for key in ("system_prompt", "template_variables") if getattr(prompting, key)]
    if needing and not prompting.chat:
        raise ValueError(f"{needing[0]} is for a chat template, which chat: false turns off: leave one out")
    if needing and tokenizer.chat_template is None:
        name = tokenizer.name_or_path or type(tokenizer).__name__
        raise ValueError(
            f"{needing[0]} is for a chat template, but the tokenizer {name!r} has none: use prompt_template, "
            "which works for every model"
        )
    return prompting


def _checked_eos(tokenizer: PreTrainedTokenizerFast, eos_ids: Sequence[int] | None) -> tuple[int, ...]:
    """The given EOS tokens, or the tokenizer's own."""
    name = tokenizer.name_or_path or type(tokenizer).__name__
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"tokenizer {name!r} is not a fast tokenizer: load one that has a tokenizer.json")
    if not eos_ids and tokenizer.eos_token_id is None:
        raise ValueError(
            f"tokenizer {name!r} has no EOS token, so no response could ever end: "
            "set tokenizer.eos_token or pass eos_ids"
        )
    chosen = tuple(eos_ids or (tokenizer.eos_token_id,))
    for token_id in chosen:
        if tokenizer.convert_ids_to_tokens(token_id) is None:
            raise ValueError(f"eos_ids: tokenizer {name!r} has no token {token_id}")
    return chosen


def _special_ids(tokenizer: PreTrainedTokenizerFast, eos_ids: Sequence[int]) -> frozenset[int]:
    """All tokens that never stand for text: flagged so in the vocabulary, or named by the tokenizer."""
    flagged = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(flagged | set(tokenizer.all_special_ids) | set(eos_ids))


def _special_pattern(tokenizer: PreTrainedTokenizerFast, special_ids: Iterable[int]) -> re.Pattern[str]:
    """Matches any special token, longest first, with the blanks that the token swallows on either side."""
    patterns = {}
    added_tokens = tokenizer.added_tokens_decoder  # the whole table is made anew whenever it is asked for
    for token_id in special_ids:
        added = added_tokens.get(token_id)
        name = added.content if added else tokenizer.convert_ids_to_tokens(token_id)
        if name:
            left = r"\s*" if added and added.lstrip else ""
            right = r"\s*" if added and added.rstrip else ""
            patterns[name] = left + re.escape(name) + right
    return re.compile(
        "(" + "|".join(patterns[name] for name in sorted(patterns, key=len, reverse=True)) + ")"
    )


def _restore(text: str, look_alikes: Mapping[str, str]) -> str:
    for placeholder, look_alike in look_alikes.items():
        text = text.replace(placeholder, look_alike)
    return text


def _exact_copy(backend: Tokenizer, eos_ids: Sequence[int]) -> Tokenizer:
    """The same vocabulary in a pipeline that neither changes nor prefixes text, for encoding and decoding."""
    from tokenizers import Tokenizer

    # The model comes last, 33 MB of JSON with Gemma's vocabulary: it stays as it is. Inside of strings quotes
    # have a backslash in front, so what separates it is found nowhere else.
    rest, model_key, model = backend.to_str().partition(',"model":{')
    state = json.loads(rest + "}")
    state["truncation"] = state["padding"] = state["post_processor"] = None
    for part in ("normalizer", "pre_tokenizer", "decoder"):
        state[part] = _lossless(state[part])
    for token in state["added_tokens"]:
        token["lstrip"] = token["rstrip"] = False
        token["special"] = token["special"] or token["id"] in eos_ids
    copy: Tokenizer = Tokenizer.from_str(json.dumps(state)[:-1] + model_key + model)
    copy.encode_special_tokens = True  # a special token's name in the text is only text
    return copy


_NORMAL_FORMS = ("NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled")
_REWRITING = frozenset((*_NORMAL_FORMS, "Lowercase", "StripAccents", "BertNormalizer", "Prepend", "Strip"))
"""Normalisers (and the decoder `Strip`) that add to, rewrite or cut text."""


def _lossless(part: Any) -> Any:
    """One stage of a tokenizer's JSON without what changes text or puts a blank in front of it."""
    if part is None or part["type"] in _REWRITING:
        return None
    kept = dict(part)
    for children in ("normalizers", "pretokenizers", "decoders"):
        if children in kept:
            kept[children] = [child for child in map(_lossless, kept[children]) if child is not None]
    if "prepend_scheme" in kept:
        kept["prepend_scheme"] = "never"
    if "add_prefix_space" in kept:
        kept["add_prefix_space"] = False
    if "cleanup" in kept:
        kept["cleanup"] = False
    return kept
