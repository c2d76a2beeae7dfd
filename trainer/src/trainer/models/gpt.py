"""``gpt``: a decoder of tokens in the manner of GPT-2 (Radford and others 2019), presets ``tiny`` and ``124m``."""

from __future__ import annotations

import math

import torch
from torch import nn

from ..data.dataset import DatasetInfo

# layers, heads, width. 124m has GPT-2's shape; its number of parameters is that with a vocabulary of 50257 and
# sequences of 1024.
PRESETS = {"tiny": (4, 4, 128), "124m": (12, 12, 768)}


class Attention(nn.Module):
    """[b, t, width] to the same; no token sees a later one. Three projections and not a fused one: tensor
    parallelism gives whole heads to each rank, so that their number is taken from the projection's own width."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        b, t, _ = states.shape
        query, key, value = (
            project(states).view(b, t, -1, self.head_width).transpose(1, 2)  # [b, heads, t, head_width]
            for project in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.dropout(self.out(mixed.transpose(1, 2).reshape(b, t, -1)))


class Block(nn.Module):
    """Attention and a two-layer network, each after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.network_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation = nn.GELU(approximate="tanh")
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.attention(self.attention_norm(states))
        return states + self.dropout(self.down(self.activation(self.up(self.network_norm(states)))))


class GPT(nn.Module):
    """Tokens int64 [b, t], t up to ``length``, to logits [b, t, vocabulary].

    The table that turns tokens into vectors also turns vectors into logits (tied embeddings).
    """

    def __init__(
        self, vocabulary: int, length: int, layers: int, heads: int, width: int, dropout: float
    ) -> None:
        super().__init__()
        self.heads, self.length = heads, length
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(length, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(Block(width, heads, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self._initialise(layers)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        states = self.embed(tokens)
        for layer in self.layers:
            states = layer(states)
        return self.head(self.norm(states))

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """[b, t] to [b, t, width]."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.dropout(self.tokens(tokens) + self.places(places))

    def blocks(self) -> list[nn.Module]:
        """Of a stage those that it keeps."""
        return [layer for layer in self.layers if isinstance(layer, Block)]

    def keep_stage(self, stage: int, stages: int) -> None:
        """Drop what another stage of a pipeline computes; names stay those of the whole. The first one embeds, the last
        one gives logits, and the table of tokens is in both. ``layers`` are a multiple of ``stages``."""
        share = len(self.layers) // stages
        for number in range(len(self.layers)):
            if number // share != stage:
                self.layers[number] = nn.Identity()
        if stage > 0:
            del self.places
        if stage < stages - 1:
            del self.norm
        if 0 < stage < stages - 1:
            del self.tokens, self.head

    def training_flops(self) -> float:
        """Of one sample, forward and backward: 6N + 12·L·H·Q·T a token (PaLM, Chowdhery and others 2022), where N
        leaves the places out, which are looked up and not multiplied."""
        parameters = sum(weight.numel() for weight in self.parameters()) - self.places.weight.numel()
        width = self.tokens.embedding_dim
        return float(self.length * (6 * parameters + 12 * len(self.layers) * width * self.length))

    def _initialise(self, layers: int) -> None:
        """GPT-2's: 0.02, and less for what is added to the shortcuts, of which there are two a layer."""
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        for layer in self.layers:
            for added in (layer.attention.out, layer.down):  # type: ignore[union-attr]
                nn.init.normal_(added.weight, std=0.02 / math.sqrt(2 * layers))  # type: ignore[union-attr,arg-type]


def build(
    dataset: DatasetInfo,
    preset: str = "tiny",
    layers: int | None = None,
    heads: int | None = None,
    width: int | None = None,
    dropout: float = 0.0,
) -> nn.Module:
    """``preset``: "tiny" or "124m"; ``layers``, ``heads`` and ``width`` change single numbers of it. Vocabulary and
    sequence length are the dataset's."""
    if dataset.vocabulary is None or dataset.sequence_length is None:
        raise ValueError(f"{dataset.name} holds images; this model takes tokens")
    if preset not in PRESETS:
        raise ValueError(f'preset must be one of {", ".join(PRESETS)}, not "{preset}"')
    preset_layers, preset_heads, preset_width = PRESETS[preset]
    layers, heads, width = layers or preset_layers, heads or preset_heads, width or preset_width
    if width % heads:
        raise ValueError(f"width {width} must be a multiple of the {heads} heads")
    return GPT(dataset.vocabulary, dataset.sequence_length, layers, heads, width, dropout)
