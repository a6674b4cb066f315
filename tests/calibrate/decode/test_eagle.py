"""A head over the target's states: decoded, recorded at every depth, and read from a folder."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from calibrate.decode.build import build_drafter, start
from calibrate.decode.drafters import CachedHead, EagleHead, Horizontal, Neural, Vertical
from calibrate.decode.engine import CachedModel, DecodeRequest
from calibrate.decode.plain import plain
from calibrate.decode.speculative import speculative
from calibrate.measure.recorded_text import ReadableText
from calibrate.measure.trace import generator
from calibrate.models.eagle import EagleModel, load_head, save_head, unrolled
from calibrate.models.pool import ModelPool, ModelSet
from calibrate.models.sampling import Sampling
from specsim.acceptance import ACCEPTANCE_LAWS, AcceptanceLaw
from specsim.checks import InvalidArgumentError, UnsupportedError
from specsim.predict.replay import build
from specsim.rules import Distributions, acceptance_given
from specsim.schemes import SpeculativeDecoding
from specsim.schemes.drafters import EagleDrafter
from tests.support.heads import slow_rows, unlike
from tests.support.imitations import CPU, GREEDY, ORDINARY, greedy, prompts, twin

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def head(models: dict[str, CachedModel]) -> EagleModel:
    return unlike(models["target"].model)


@pytest.fixture(scope="module")
def model_set(models: dict[str, CachedModel], head: EagleModel) -> ModelSet:
    pool = ModelPool(
        models["target"].model, {"draft": models["draft"].model}, 64, heads={"eagle": head}
    )
    return pool.new(timed=False)


def recorded(
    model_set: ModelSet, prompt: list[int], sampling: Sampling, limit: int = 20
) -> ReadableText:
    request = DecodeRequest(prompt, limit, sampling, generator(CPU, len(prompt)))
    tokens = plain(model_set.target, request).finish().tokens
    return ReadableText(prompt, tokens, limit, sampling, model_set)


@torch.inference_mode()
def test_features_are_what_the_language_model_head_reads(models: dict[str, CachedModel]) -> None:
    target = twin(models["target"])
    target.keeps_states = True
    target.prefill([5, 6, 7, 8])
    target.read(torch.tensor([[8, 9, 10]]))
    target.forget(1)
    whole = target.model(torch.tensor([[5, 6, 7, 8, 9]]), use_cache=False).logits[0]
    torch.testing.assert_close(target.model.lm_head(target.states()), whole, **CLOSE)


def test_states_are_kept_only_for_who_reads_them(
    models: dict[str, CachedModel], head: EagleModel
) -> None:
    target = twin(models["target"])
    speculative(target, EagleHead(CachedHead(head, target)), greedy([5, 6], 8), 2).finish()
    assert len(target.states()) >= 8
    plain(target, greedy([5, 6], 8)).finish()
    assert len(target.states()) == 0


@torch.inference_mode()
def test_all_depths_in_one_run_each_are_those_of_each_start_alone(
    models: dict[str, CachedModel],
) -> None:
    """In double precision, where nothing is lost to rounding."""
    target, depths = copy.deepcopy(models["target"].model).double(), 4
    head = unlike(target)
    texts = torch.randint(64, (2, 12), generator=torch.Generator().manual_seed(3))
    features = target(texts, output_hidden_states=True, use_cache=False).hidden_states[-1]
    for first in (0, 3):
        rows = unrolled(head, texts, features[:, :-1], depths, first)
        assert [each.shape[1] for each in rows] == [11 - first - depth for depth in range(depths)]
        for depth, logits in enumerate(rows):
            for place in range(logits.shape[1]):
                # The block starts at first + 2 + place, and so many of its tokens are read.
                read = first + 2 + place + depth
                for text, row in zip(texts.tolist(), logits, strict=True):
                    alone = slow_rows(head, target, text[:read], depth)
                    torch.testing.assert_close(row[place], alone, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("gamma", range(6))
def test_greedy_text_is_plain_text_and_runs_are_the_replayed_ones(
    model_set: ModelSet, gamma: int
) -> None:
    """Ranks of the recorded text give every block, and it is drafted token by token."""
    accepted = 0
    for prompt in prompts(6):
        text, scheme = recorded(model_set, prompt, GREEDY), SpeculativeDecoding(gamma, "eagle")
        result = start(scheme, model_set, greedy(prompt, text.limit)).finish()
        assert result.tokens == list(text.tokens)
        expected = build.predict(scheme, text)
        assert expected.calls == result.calls
        assert expected.runs.runs("eagle") == result.draft.count == sum(result.drafted)
        ranks = text.ranks_by_depth(scheme.drafter)
        place = 0
        for kept, drafted in zip(result.accepted, result.drafted, strict=True):
            stood = ranks[place, :drafted] == 1
            assert kept == (drafted if stood.all() else stood.argmin())
            place += kept + 1
        accepted += sum(result.accepted)
    assert accepted or not gamma, "a head that never agrees tests nothing"


def test_the_first_run_of_a_block_reads_what_was_emitted(
    model_set: ModelSet,
) -> None:
    result = start(SpeculativeDecoding(3, "eagle"), model_set, greedy([5, 6, 7], 20)).finish()
    emitted = [1, *(kept + 1 for kept in result.accepted)]
    firsts = [width for width, drafted in zip(emitted, result.drafted, strict=False) if drafted]
    later = sum(drafted - 1 for drafted in result.drafted if drafted)
    widths = result.draft.widths
    assert sum(width * count for width, count in widths.items()) == sum(firsts) + later
    assert widths.total() == len(firsts) + later


@pytest.mark.parametrize("law", ACCEPTANCE_LAWS)
@torch.inference_mode()
def test_a_text_is_accepted_at_every_depth_as_the_rules_say(
    model_set: ModelSet, head: EagleModel, law: AcceptanceLaw
) -> None:
    text, depths = recorded(model_set, [5, 6, 7], ORDINARY, limit=8), 3
    accepted, lengths = text.accepted_by_depth(EagleDrafter("eagle", depths), "target", law)
    assert (lengths == depths).all()
    read = [*text.prompt, *text.tokens]
    p = text.rows("target")
    for place in range(8):
        for depth in range(depths):
            if place + depth >= 8:
                assert accepted[place, depth] == 0
                continue
            row = slow_rows(head, model_set.target.model, read[: 3 + place + depth], depth)
            q = ORDINARY.probabilities(row[None])
            rows = Distributions(p[place + depth][None], q)
            token = torch.tensor([text.tokens[place + depth]])
            rate = float(acceptance_given(law, rows, token))
            assert accepted[place, depth] == pytest.approx(rate, abs=1e-5)


def test_ranks_are_counted_from_the_top(model_set: ModelSet, head: EagleModel) -> None:
    text = recorded(model_set, [5], ORDINARY, limit=6)
    ranks = text.ranks_by_depth(EagleDrafter("eagle", 2))
    read = [*text.prompt, *text.tokens]
    assert ranks[0].tolist() == [0, 0], "nothing lies before the first token"
    assert ranks[5, 1] == 0, "nor behind the last"
    for place, depth in ((1, 0), (1, 1), (3, 1), (5, 0)):
        row = slow_rows(head, model_set.target.model, read[: 1 + place + depth], depth)
        order = row.argsort(descending=True, stable=True).tolist()
        assert ranks[place, depth] == 1 + order.index(text.tokens[place + depth])


def test_a_head_may_draft_first_but_not_behind_others(
    model_set: ModelSet, models: dict[str, CachedModel], head: EagleModel
) -> None:
    target, draft = twin(models["target"]), twin(models["draft"])
    own = EagleHead(CachedHead(head, target))
    text = plain(target, greedy([5, 6, 7], 16)).finish().tokens
    first = Horizontal([(own, 2), (Neural(draft), 2)])
    assert speculative(target, first, greedy([5, 6, 7], 16)).finish().tokens == text
    behind = Horizontal([(Neural(draft), 2), (own, 2)])
    with pytest.raises(UnsupportedError, match="let it draft first"):
        speculative(target, behind, greedy([5, 6, 7], 16)).finish()
    reviewed = Vertical(draft, own, 1, steps=2)
    with pytest.raises(UnsupportedError, match="let it draft first"):
        speculative(target, reviewed, greedy([5, 6, 7], 16)).finish()
    with pytest.raises(UnsupportedError, match="draft cannot review it"):
        recorded(model_set, [5, 6], GREEDY).accepted_by_depth(EagleDrafter("eagle", 2), "draft")


def test_a_head_comes_back_from_its_folder_to_its_own_target_only(
    models: dict[str, CachedModel], head: EagleModel, tmp_path: Path
) -> None:
    target = models["target"].model
    save_head(head, target, tmp_path, "a" * 64)
    back = load_head(tmp_path, target, "a" * 64)
    assert back.parameter_count == head.parameter_count
    begun = EagleModel(target).own()
    for name, weight in head.own().items():
        # To half a step of 1/127 of its row's largest, or to half precision, and that of a step.
        size = (weight - begun[name]).abs().amax(dim=-1, keepdim=True)
        error = (0.5 / 127 if weight.ndim == 2 else 0.0) + 2.0**-10
        assert ((back.own()[name] - weight).abs() <= error * size).all()


def test_a_folder_that_holds_no_head_of_this_target_is_refused(
    models: dict[str, CachedModel], head: EagleModel, tmp_path: Path
) -> None:
    target = models["target"].model
    save_head(head, target, tmp_path, "a" * 64)
    with pytest.raises(InvalidArgumentError, match=r"another target .*the head of this target"):
        load_head(tmp_path, target, "b" * 64)
    file = tmp_path / "model.safetensors"
    file.write_bytes(save({**load_file(file), "fc.weight": torch.zeros((32, 63))}))
    with pytest.raises(InvalidArgumentError, match=r"shape \(32, 64\), got \(32, 63\)"):
        load_head(tmp_path, target, "a" * 64)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "kind": "other"}))
    with pytest.raises(InvalidArgumentError, match="must have kind 'eagle-head'"):
        load_head(tmp_path, target, "a" * 64)
    with pytest.raises(InvalidArgumentError, match="cannot be loaded"):
        load_head(tmp_path / "nowhere", target, "a" * 64)


def test_a_set_without_a_head_says_so(models: dict[str, CachedModel]) -> None:
    with pytest.raises(InvalidArgumentError, match="eagle needs a head"):
        build_drafter(EagleDrafter("eagle", 2), ModelSet(models["target"], {}))


def test_a_head_begins_as_the_last_layer_over_feature_and_token(
    models: dict[str, CachedModel],
) -> None:
    target = models["target"].model
    model = EagleModel(target)
    last = target.config.num_hidden_layers - 1
    state = target.state_dict()
    for name, weight in model.own().items():
        if ".layers." in name:
            theirs = state[name.removeprefix("decoder.").replace(".layers.0.", f".layers.{last}.")]
            assert torch.equal(weight, theirs)
            assert weight.data_ptr() != theirs.data_ptr()
    assert model.decoder.lm_head.weight.data_ptr() == target.lm_head.weight.data_ptr()
    width = target.config.hidden_size
    assert np.array_equal(model.fc.weight[:, width:].detach(), np.eye(width))
