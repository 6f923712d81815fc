"""Texts to vectors by a frozen language model (GPT-2) through ``transformers``."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from agt.errors import AgtError, ConfigError, DataError, DataMissing, first_line

from .encoder import state_digest
from .reviews import INSTALL

Pooling = Literal["mean", "last", "max"]
FILES = "config.json model.safetensors tokenizer.json tokenizer_config.json vocab.json merges.txt"


@dataclass(frozen=True)
class Embedder:
    """A frozen model and its tokenizer.

    Attributes:
        model: gives ``last_hidden_state`` [batch, tokens, width].
        tokenizer: text to token numbers, without special tokens.
        width: of a vector.
        device: where the model runs.
        tokens: a text's first so many tokens are read.
        pooling: over a text's tokens: their mean, the last one's vector, or the greatest of each
            coordinate.
        digests: of weights and tokenizer.
    """

    model: Any
    tokenizer: Any
    width: int
    device: str
    tokens: int
    pooling: Pooling
    digests: dict[str, str]

    def embed(self, texts: Sequence[str], batch: int) -> np.ndarray:
        """[n, width] float32.

        With ``batch`` 1 a text's vector is a function of that text alone, to the last bit, on one
        machine and number of threads. In larger batches, texts of like length together and padded
        on the right, products are of another shape, and its last digits may depend on its
        neighbours.

        Raises:
            DataError: a text has no token.
            AgtError: a vector is not finite.
        """
        tokens = [self._tokens(text) for text in texts]
        out = np.empty((len(texts), self.width), dtype=np.float32)
        for rows in _alike([len(t) for t in tokens], batch):
            out[rows] = self._forward([tokens[row] for row in rows]).numpy()
        bad = np.flatnonzero(~np.isfinite(out).all(axis=1))
        if len(bad):
            raise AgtError(
                f"the model's vector is NaN or infinite for {texts[bad[0]][:60]!r}...: set "
                "prepare.dtype=float32"
            )
        return out

    def _tokens(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer(
            text, add_special_tokens=False, truncation=True, max_length=self.tokens
        )["input_ids"]
        if not ids:
            raise DataError(
                f"the tokenizer finds no token in {text[:60]!r}: remove that review, or check "
                "prepare.model"
            )
        return ids

    def _forward(self, tokens: list[list[int]]) -> Tensor:
        lengths = torch.tensor([len(t) for t in tokens])
        padded = torch.zeros(len(tokens), int(lengths.max()), dtype=torch.int64)
        for row, ids in enumerate(tokens):
            padded[row, : len(ids)] = torch.tensor(ids)
        mask = torch.arange(padded.shape[1]) < lengths[:, None]
        padded = padded.to(self.device)
        mask = mask.to(self.device)
        with torch.inference_mode():
            answer = self.model(input_ids=padded, attention_mask=mask.long())
            return pool(answer.last_hidden_state.float(), mask, self.pooling).cpu()


def pool(states: Tensor, mask: Tensor, pooling: Pooling) -> Tensor:
    """[batch, width] from [batch, tokens, width]; ``mask`` [batch, tokens] is True for a text's own
    tokens, which come first and of which there is at least one.
    """
    lengths = mask.sum(dim=1)
    is_padding = ~mask[..., None]
    if pooling == "last":
        return states[torch.arange(len(states)), lengths - 1]
    if pooling == "max":
        return states.masked_fill(is_padding, -torch.inf).amax(dim=1)
    return states.masked_fill(is_padding, 0).sum(dim=1) / lengths[:, None]


def load_embedder(
    place: str,
    is_folder: bool,
    device: str,
    dtype: str,
    tokens: int,
    pooling: Pooling,
    by_hand: str,
) -> Embedder:
    """The model in a local folder, or on the hub (or in its cache).

    Args:
        place: the folder, or the hub's name.
        is_folder: which of the two.
        by_hand: what to do without a network, for the message.

    Raises:
        DataMissing: no such folder, an unreachable hub, or transformers not installed.
        DataError: the folder lacks files, or weights of the model are missing.
        ConfigError: no such device, or more tokens than the model reads.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("prepare.device=cuda, but PyTorch finds no GPU: set prepare.device=cpu")
    if is_folder and not Path(place).is_dir():
        raise DataMissing(
            f"{place} does not exist or is not a folder: change prepare.model, or {by_hand}"
        )
    tokenizer, model = _load_model(place, is_folder, by_hand)
    limit = getattr(model.config, "max_position_embeddings", tokens)
    if tokens > limit:
        raise ConfigError(
            f"prepare.tokens={tokens} exceeds {limit}, the number of tokens that this model can "
            f"read: give {limit} or fewer"
        )
    width = int(model.config.hidden_size)
    digests = {"weights": state_digest(model), "tokenizer": _tokenizer_digest(tokenizer)}
    model = model.to(device=device, dtype=getattr(torch, dtype)).requires_grad_(False).eval()
    return Embedder(model, tokenizer, width, device, tokens, pooling, digests)


def _load_model(place: str, is_folder: bool, by_hand: str) -> tuple[Any, Any]:
    try:
        import transformers
    except ImportError:
        raise DataMissing(
            f"embedding text needs the package transformers. Type {INSTALL}"
        ) from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=is_folder)
        model, info = transformers.AutoModel.from_pretrained(
            place, local_files_only=is_folder, output_loading_info=True
        )
    except Exception as error:  # each kind of broken file raises a class of its own
        why = first_line(error)
        if is_folder:
            raise DataError(
                f"{place} does not have a complete model with its tokenizer "
                f"({type(error).__name__}: {why}). It needs {FILES}, as save_pretrained writes "
                "them"
            ) from None
        if isinstance(error, OSError):
            raise DataMissing(
                f"the model '{place}' cannot be fetched from the hub ({why}): {by_hand}"
            ) from None
        raise
    missing = sorted(info["missing_keys"])
    if missing:  # transformers would go on with random numbers in their place
        raise DataError(
            f"{place}: the weights lack {missing[0]} ({len(missing)} missing in all): get the "
            "model again"
        )
    if not tokenizer.vocab_size:
        raise DataError(f"{place}: the tokenizer has no vocabulary. It needs {FILES}")
    return tokenizer, model


def _alike(lengths: list[int], batch: int) -> Iterator[list[int]]:
    """Rows in batches of like length."""
    order = sorted(range(len(lengths)), key=lengths.__getitem__)
    for start in range(0, len(order), batch):
        yield order[start : start + batch]


def _tokenizer_digest(tokenizer: Any) -> str:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    vocabulary = sorted(tokenizer.get_vocab().items())
    text = repr(vocabulary) if backend is None else backend.to_str()
    return blake2b(text.encode(), digest_size=16).hexdigest()
