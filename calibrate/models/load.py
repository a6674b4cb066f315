"""Load a pair of models by name or path, and refuse pairs that cannot speculate together."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
)

from calibrate.decode.drafters.copying import PromptLookup
from calibrate.decode.encoder_decoder import cached_model, is_encoder_decoder
from calibrate.decode.engine import CachedModel
from calibrate.models.config_fields import check_no_code
from calibrate.models.eagle import EagleModel, is_head, load_head
from calibrate.models.embedded import EMBEDDED, FAMILY, HEADS, MEMBERS
from calibrate.models.shapes import random_model
from specsim.checks import InvalidArgumentError, SpecsimError, UnsupportedError, reason_of
from specsim.files import check_regular
from specsim.hardware import known_shapes, read_config
from specsim.profiles import PROMPT_LOOKUP, MeasuredModel, Profile, lacks_draft_model

# The same weights as others have them.
_OTHER_LAYOUTS = ("consolidated*.safetensors",)


class ModelError(SpecsimError):
    """A model or a pair that cannot be used; the message says why."""


@dataclass(frozen=True)
class Loaded:
    """A model ready to run, its tokenizer, and what the profile says of it."""

    model: Any
    tokenizer: Any
    description: MeasuredModel

    @property
    def end_of_text(self) -> frozenset[int]:
        """Tokens behind which a text ends, as engines have them: the tokenizer's, and those of the
        model's generation config, which has the end of a turn, too.
        """
        config = getattr(self.model, "generation_config", None)
        known = getattr(config, "eos_token_id", None)
        tokens = known if isinstance(known, list) else [known]
        return frozenset({self.tokenizer.eos_token_id, *tokens} - {None})

    @property
    def reads_source(self) -> bool:
        """Whether prompts are sources: of an encoder-decoder model."""
        return is_encoder_decoder(self.model)

    def require_causal(self, what: str) -> None:
        """Refuse an encoder-decoder model, with which ``what`` cannot be had."""
        if self.reads_source:
            raise UnsupportedError(
                f"{what} takes causal models, and {self.description.name} is an encoder-decoder "
                f"model: calibrate and validate it without {what}"
            )


@dataclass(frozen=True)
class Pair:
    """A target and a draft of one tokenizer."""

    target: Loaded
    draft: Loaded

    def cached(self, timed: bool = True) -> tuple[CachedModel, CachedModel]:
        """Target and draft with fresh caches, over the vocabulary that both have."""
        models = self.target.model, self.draft.model
        shared = min(model.config.get_text_config().vocab_size for model in models)
        target, draft = (cached_model(model, shared, timed) for model in models)
        return target, draft

    def with_drafter(self, timed: bool = True) -> tuple[CachedModel, CachedModel | PromptLookup]:
        """The target and what drafts for it, ready for a request."""
        return self.cached(timed)

    @property
    def context(self) -> int:
        """The longest text that both can read."""
        return min(self.target.description.context, self.draft.description.context)


@dataclass(frozen=True)
class LookupPair(Pair):
    """A target for which prompt lookup drafts: its draft is described and has no model."""

    @staticmethod
    def of(target: Loaded) -> LookupPair:
        """Any causal target."""
        target.require_causal(PROMPT_LOOKUP)
        longest = PromptLookup().longest
        described = MeasuredModel(
            PROMPT_LOOKUP,
            parameters=0,
            context=target.description.context,
            sha256=hashlib.sha256(f"{PROMPT_LOOKUP} {longest}".encode()).hexdigest(),
            longest_match=longest,
        )
        return LookupPair(target, Loaded(None, target.tokenizer, described))

    def cached(self, timed: bool = True) -> tuple[CachedModel, CachedModel]:
        raise lacks_draft_model("a pair of models")

    def with_drafter(self, timed: bool = True) -> tuple[CachedModel, CachedModel | PromptLookup]:
        """The searches are host time, as in the overhead of a profile."""
        return cached_model(self.target.model, timed=timed), PromptLookup(counted=False)


def load_pair(
    target: str,
    draft: str,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    trust_remote_code: bool = False,
) -> Pair:
    """Load both models and check that their tokenizers are the same; or a target alone, for which
    ``prompt-lookup`` drafts.
    """
    if draft == PROMPT_LOOKUP:
        return LookupPair.of(load(target, device, dtype, trust_remote_code))
    pair = Pair(*(load(name, device, dtype, trust_remote_code) for name in (target, draft)))
    check_kind(pair.target, pair.draft, "draft")
    difference = tokenizer_difference(pair.target.tokenizer, pair.draft.tokenizer)
    if difference is not None:
        raise ModelError(
            f"target {target} and draft {draft} have different tokenizers ({difference}); "
            "speculative decoding needs one tokenizer for both"
        )
    return pair


def check_kind(target: Loaded, other: Loaded, role: str) -> None:
    """Refuse models of which one is an encoder-decoder: they do not read the same text."""
    if target.reads_source != other.reads_source:
        names = {each.reads_source: each.description.name for each in (target, other)}
        raise ModelError(
            f"{names[True]} is an encoder-decoder model and {names[False]} is not: target and "
            f"{role} must be of one kind"
        )


def build(shape: str, device: torch.device, dtype: torch.dtype) -> tuple[Any, MeasuredModel]:
    """A model with random weights, which costs what a trained one does, and what a profile says.

    shape : what ``specsim.hardware.read_config`` takes
    """
    config = read_config(shape)
    model = random_model(config, device, dtype)
    sha256 = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()
    return model, _described(shape, model, sha256, config)


def _described(
    name: str, model: Any, sha256: str, config: dict[str, Any] | None = None
) -> MeasuredModel:
    """What a profile says of a model."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return MeasuredModel(name, parameters, cached_model(model).context, sha256, config)


def load_or_build(
    name: str, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False
) -> tuple[Any, MeasuredModel]:
    """A model by its name or by its shape, and what a profile says of it."""
    if name in known_shapes() or name.endswith(".json"):
        return build(name, device, dtype)
    loaded = load(name, device, dtype, trust_remote_code)
    return loaded.model, loaded.description


def load_measured(
    profile: Profile, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False
) -> tuple[Any, Any]:
    """The target and the draft that a profile was measured on; shapes get random weights."""

    def model(measured: MeasuredModel) -> Any:
        if measured.config is not None:
            return random_model(measured.config, device, dtype)
        loaded = load(measured.name, device, dtype, trust_remote_code)
        _check_measured(measured, loaded)
        return loaded.model

    return model(profile.target), model(profile.draft)


def load_measured_pair(
    profile: Profile, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False
) -> Pair:
    """The pair that a profile was measured on, with its tokenizer."""
    names = profile.target.name, profile.draft.name
    pair = load_pair(*names, device, dtype, trust_remote_code)
    _check_measured(profile.target, pair.target)
    _check_measured(profile.draft, pair.draft)
    return pair


def _check_measured(measured: MeasuredModel, loaded: Loaded) -> None:
    """Refuse a model that is not the measured one any more."""
    if measured.sha256 != loaded.description.sha256:
        raise InvalidArgumentError(f"the model {measured.name} is not the one in the profile")


def load(
    name: str, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False
) -> Loaded:
    """A model and its tokenizer: ``embedded/target``, a folder, or a Hugging Face Hub name."""
    folder = resolve(name)
    if is_head(folder):
        raise ModelError(f"model {name} is a head over its target's states: it drafts as 'eagle'")
    if not trust_remote_code:
        check_no_code(folder, f"model {name}", ModelError)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    code = trust_remote_code
    try:
        # Of a damaged file torch warns before transformers refuses it.
        with warnings.catch_warnings(action="ignore"):
            tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=code)
            config = AutoConfig.from_pretrained(folder, trust_remote_code=code)
            seq2seq = getattr(config, "is_encoder_decoder", False)
            kind = AutoModelForSeq2SeqLM if seq2seq else AutoModelForCausalLM
            model, found = kind.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=code,
                output_loading_info=True,
            )
            model = model.to(device).eval()
    # transformers raises whatever a damaged file leads it to, which all means the same.
    except Exception as error:
        raise ModelError(f"model {name} cannot be loaded: {reason_of(error)}") from None
    if missing := sorted(found["missing_keys"]):
        raise ModelError(
            f"model {name} lacks weights, which would be drawn at random: {', '.join(missing[:3])}"
            f"{' and others' if len(missing) > 3 else ''}"
        )
    return Loaded(model, tokenizer, _described(name, model, digest(folder)))


def load_head_of(target: Loaded, name: str) -> tuple[EagleModel, str]:
    """A head of this target, ``embedded/eagle`` or a folder, and the SHA-256 of its weights."""
    folder = resolve(name)
    return load_head(folder, target.model, target.description.sha256), digest(folder)


def resolve(name: str) -> Path:
    """The folder of a model; a name that is no folder is fetched from the Hub."""
    if name.startswith(EMBEDDED):
        member = name.removeprefix(EMBEDDED)
        if member not in (*MEMBERS, *HEADS):
            known = ", ".join(EMBEDDED + known for known in (*MEMBERS, *HEADS))
            raise ModelError(f"model {name} is not in the embedded family ({known})")
        return FAMILY / member
    if os.path.isdir(name):
        return Path(name)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(f"model {name}: no such folder")
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.safetensors", "*.model", "*.txt", "*.py"]
    try:
        return Path(
            snapshot_download(name, allow_patterns=wanted, ignore_patterns=["*/*", *_OTHER_LAYOUTS])
        )
    except Exception as error:  # the Hub client raises many kinds, all meaning "not to be had"
        raise ModelError(
            f"model {name}: no such folder, and it cannot be fetched from the Hugging Face Hub "
            f"({type(error).__name__})"
        ) from None


def digest(folder: Path) -> str:
    """SHA-256 over the config and the weights, in the layout that is loaded."""
    sha = hashlib.sha256()
    weights = sorted(folder.glob("*.safetensors"))
    others = {file for pattern in _OTHER_LAYOUTS for file in folder.glob(pattern)}
    for file in [folder / "config.json", *(each for each in weights if each not in others)]:
        check_regular(file, str(file), ModelError)
        with file.open("rb") as stream:
            sha.update(hashlib.file_digest(stream, "sha256").digest())
    return sha.hexdigest()


def tokenizer_difference(first: Any, second: Any) -> str | None:
    """What makes two tokenizers differ in the tokens that they give, or None.

    Vocabulary sizes say too little (padded vocabularies) and too much: the model, the
    normaliser, the pre-tokeniser and the added tokens decide.
    """
    if not all(hasattr(tokenizer, "backend_tokenizer") for tokenizer in (first, second)):
        return "one of them is a slow tokenizer, which cannot be compared"
    backends = [tokenizer.backend_tokenizer for tokenizer in (first, second)]
    one, other = (json.loads(backend.to_str()) for backend in backends)
    for part in ("model", "normalizer", "pre_tokenizer", "added_tokens"):
        if one[part] != other[part]:
            return f"their {part.replace('_', '-')} differs"
    return None
