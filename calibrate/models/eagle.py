"""An EAGLE head: one layer over the target's last hidden state that drafts token by token.

Li24 (EAGLE, arXiv 2401.15077) pairs the feature of a token, the target's last hidden state, with
the embedding of the token behind it.  With f_k the feature at x_k (behind the target's last norm,
what its language-model head reads) and e the target's embedding,

    f'_{k+1} = layer(fc [e(x_{k+1}); f_k]),      q(x_{k+2} | x_0..x_{k+1}) = head(f'_{k+1}).

The layer is one of the target's own kind with a cache of its own; embedding, last norm and
language-model head are the target's.  Behind the text the target's features run out, and f' takes
their place: the deeper a draft, the more of what the head reads is its own.  It is trained like
that (training-time test, Li25, EAGLE-3, arXiv 2503.01840).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import nn
from transformers import DynamicCache

from calibrate.decode.drafters.neural import first_layers
from calibrate.models.cache_argument import cache_argument
from specsim.checks import InvalidArgumentError, reason_of
from specsim.files import check_regular, read_regular

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_KIND = "eagle-head"
# Bytes of a config.json.
_LARGEST_CONFIG = 2**22
# Of a row of a matrix in 8 bits: the most steps from 0, and where their size is kept.
_LARGEST, _STEP = 127, ".step"


class EagleModel(nn.Module):
    """The head of a target; its layer begins as the target's last one.

    Embedding, last norm and language-model head are shared with the target, not copied.
    """

    def __init__(self, target: Any) -> None:
        super().__init__()
        self.config = target.config
        text = target.config.get_text_config()
        width, last = text.hidden_size, text.num_hidden_layers - 1
        place = {"device": target.device, "dtype": target.dtype}
        self.fc = nn.Linear(2 * width, width, bias=False, **place)
        self.decoder = first_layers(target, 1)
        self._cache_argument = cache_argument(self.decoder)
        weights = target.state_dict()
        for name, shared in list(self.decoder.named_parameters(remove_duplicate=False)):
            own = nn.Parameter(shared.detach(), requires_grad=False)
            if ".layers." in name:
                own = nn.Parameter(weights[name.replace(".layers.0.", f".layers.{last}.")].clone())
            owner, _, leaf = name.rpartition(".")
            setattr(self.decoder.get_submodule(owner), leaf, own)
        with torch.no_grad():
            # At first the layer reads the sum of feature and embedding, the latter at unit size:
            # the tables of a tied model are small, and would take long to be heard.
            embedding = self.decoder.get_input_embeddings().weight
            scale = embedding.float().square().mean().rsqrt()
            self.fc.weight.copy_(torch.cat([torch.eye(width) * scale, torch.eye(width)], dim=1))

    @property
    def device(self) -> torch.device:
        return self.fc.weight.device

    def own(self) -> dict[str, torch.Tensor]:
        """The weights that are not the target's."""
        return {name: p.detach() for name, p in self.named_parameters() if p.requires_grad}

    @property
    def parameter_count(self) -> int:
        """Of its own weights."""
        return sum(weight.numel() for weight in self.own().values())

    def empty_cache(self) -> Any:
        return DynamicCache(config=self.decoder.config)

    def forward(
        self, tokens: torch.Tensor, features: torch.Tensor, cache: Any, **inputs: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (B, n, V) behind n pairs, and the head's own features there, (B, n, h).

        tokens : x_{k+1}, (B, n)
        features : f_k, (B, n, h)
        cache : of the pairs before; is filled up
        inputs : positions and mask where the pairs do not simply follow the cache
        """
        read = torch.cat([self.decoder.get_input_embeddings()(tokens), features], dim=-1)
        output = self.decoder(
            inputs_embeds=self.fc(read),
            use_cache=True,
            output_hidden_states=True,
            **{self._cache_argument: cache},
            **inputs,
        )
        return output.logits, output.hidden_states[-1]


def unrolled(
    model: EagleModel, tokens: torch.Tensor, features: torch.Tensor, depths: int, first: int = 0
) -> list[torch.Tensor]:
    """The head's logits at every depth of blocks that start everywhere in texts, given the texts.

    Entry [j - 1][:, i] is for token x_{s+j-1} of a block that starts at s = first + 2 + i: the
    target's features reach to x_{s-2}, whose pair is with x_{s-1}, and the j - 1 pairs behind are
    of the text's tokens and the head's own features.  One run a depth for all starts: a pair sees
    the target's features up to its start, and of its own kind those of its start.

    tokens : texts (B, n + 1)
    features : the target's at the first n tokens, (B, n, h)
    depths : K; entry j - 1 is for the starts with a token x_{s+j-2} to read: (B, n - first - j + 1,
        V), so that its last is for the token behind the text
    first : the first start is first + 2
    """
    pairs = features.shape[1]
    cache, found = model.empty_cache(), []
    logits, own = model(tokens[:, 1:], features, cache)
    found, own = [logits[:, first:]], own[:, first:]
    starts = torch.arange(first, pairs, device=tokens.device)
    sees_text = torch.arange(pairs, device=tokens.device) <= starts[:, None]
    columns = [sees_text]
    for depth in range(1, min(depths, pairs - first)):
        rows = pairs - first - depth
        columns.append(torch.eye(rows + 1, device=tokens.device, dtype=torch.bool)[:, :rows])
        columns = [column[:rows] for column in columns]
        visible = torch.cat(columns, dim=1)
        logits, own = model(
            tokens[:, first + depth + 1 :],
            own[:, :rows],
            cache,
            attention_mask=visible[None, None].expand(len(tokens), 1, -1, -1),
            position_ids=(starts[:rows] + depth)[None].expand(len(tokens), -1),
        )
        found.append(logits)
    return found


def save_head(model: EagleModel, target: Any, folder: Path, target_sha256: str) -> None:
    """Write how far the head's own weights moved from where a head of its target begins.

    Matrices in 8 bits, each row in steps of its own that are kept as ``NAME.step``: the family may
    have 20 MB in all.  Norms are in half precision.
    """
    folder.mkdir(parents=True, exist_ok=True)
    begun = EagleModel(target).own()
    weights: dict[str, torch.Tensor] = {}
    for name, weight in model.own().items():
        moved = weight - begun[name]
        if weight.ndim == 2:
            step = (moved.abs().amax(dim=1, keepdim=True) / _LARGEST).half()
            step = step.clamp(min=torch.finfo(torch.float16).tiny)
            steps = (moved / step.to(moved)).round().clamp(-_LARGEST, _LARGEST)
            weights |= {name: steps.to(torch.int8), name + _STEP: step}
        else:
            weights[name] = moved.half()
    (folder / _WEIGHTS).write_bytes(save(weights))
    config = {
        "kind": _KIND,
        "hidden_size": model.fc.out_features,
        "layers": 1,
        "target_sha256": target_sha256,
    }
    (folder / _CONFIG).write_text(json.dumps(config, indent=2) + "\n")


def is_head(folder: Path) -> bool:
    """Whether a folder holds a head, by its config."""
    try:
        return bool(_config(folder).get("kind") == _KIND)
    except InvalidArgumentError:
        return False


def _config(folder: Path) -> dict[str, Any]:
    """The config.json of a folder; raises InvalidArgumentError where it holds no object."""
    path = folder / _CONFIG
    content = read_regular(path, "", InvalidArgumentError, _LARGEST_CONFIG)
    try:
        config = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path}: is not JSON ({reason_of(error)})") from None
    if not isinstance(config, dict):
        raise InvalidArgumentError(f"{path}: must hold a JSON object")
    return config


def load_head(folder: Path, target: Any, target_sha256: str) -> EagleModel:
    """The head in a folder, on its target; raises InvalidArgumentError if it is another's."""
    try:
        config = _config(folder)
        check_regular(folder / _WEIGHTS, str(folder / _WEIGHTS), InvalidArgumentError)
        weights = load_file(folder / _WEIGHTS)
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidArgumentError(f"head {folder} cannot be loaded: {reason_of(error)}") from None
    if config.get("kind") != _KIND:
        raise InvalidArgumentError(
            f"head {folder} must have kind {_KIND!r} in its config.json, got "
            f"{str(config.get('kind'))[:40]!r}"
        )
    if config.get("target_sha256") != target_sha256:
        raise InvalidArgumentError(
            f"head {folder} was trained over another target (SHA-256 "
            f"{str(config.get('target_sha256'))[:12]}..., this one has {target_sha256[:12]}...): "
            "give the head of this target"
        )
    model = EagleModel(target)
    for name, weight in model.own().items():
        stored, step = weights.get(name), weights.get(name + _STEP, torch.ones(()))
        if stored is None or stored.shape != weight.shape:
            raise InvalidArgumentError(
                f"head {folder} must have {name} of shape {tuple(weight.shape)}, got "
                f"{None if stored is None else tuple(stored.shape)}"
            )
        if step.shape not in ((), (len(weight), 1)):
            raise InvalidArgumentError(
                f"head {folder} must have {name + _STEP} of shape {(len(weight), 1)}, got "
                f"{tuple(step.shape)}"
            )
        weight.add_(stored.to(weight) * step.to(weight))
    return model.eval()
