"""Training that resumes, masks in one run, and the script from end to end on toy models."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from calibrate.decode.drafters import MaskFiller
from calibrate.decode.drawing import Drawing
from calibrate.decode.engine import CachedModel
from calibrate.decode.text import Text
from calibrate.models.load import FAMILY, load
from calibrate.train import corpus, eagle, loop
from calibrate.train import followers as train_followers
from calibrate.train import heldout_eval as judging
from calibrate.train.followers import FollowersRecipe, helps
from calibrate.train.loop import Fit, Schedule, Work
from calibrate.train.masks import behind, with_masks
from specsim.checks import SpecsimError
from tests.support.imitations import CPU, GREEDY
from tests.support.models import VOCABULARY, build_model

TOY = FollowersRecipe(
    tokens_per_step=256,
    warm_up_steps=2,
    prompt_tokens=(8, 12),
    new_tokens=12,
    texts=6,
    block=3,
    blocks=4,
    masks_steps=3,
    aligned_steps=2,
)
TOY_HEAD = eagle.EagleRecipe(
    tokens_per_step=64,
    warm_up_steps=2,
    prompt_tokens=8,
    new_tokens=8,
    texts=4,
    window=12,
    depths=2,
    steps=4,
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> LlamaForCausalLM:
    folder = build_model(tmp_path_factory.mktemp("plain"), layers=2, width=32, seed=4)
    return load(str(folder), CPU, torch.float32).model


@pytest.fixture(scope="module")
def masks(plain: LlamaForCausalLM) -> LlamaForCausalLM:
    """A model with masks whose every weight counts."""
    model = with_masks(plain).eval()
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def random_text(rows: int, length: int) -> torch.Tensor:
    return torch.randint(VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(6))


def test_a_new_layer_and_a_new_token_change_nothing_at_first(plain: LlamaForCausalLM) -> None:
    model, ids = with_masks(plain), random_text(2, 20)
    assert model.config.num_hidden_layers == plain.config.num_hidden_layers + 1
    assert model.config.mask_token_id == VOCABULARY
    with torch.inference_mode():
        torch.testing.assert_close(model(ids).logits[..., :VOCABULARY], plain(ids).logits)


@torch.inference_mode()
def test_blocks_in_one_run_are_what_the_drafter_sees(masks: LlamaForCausalLM) -> None:
    """Many blocks behind one text give the rows and tokens of a drafter with its cache."""
    width, mask = 4, masks.config.mask_token_id
    text, starts = random_text(2, 24), torch.tensor([[1, 9, 24], [5, 5, 17]])
    together = masks(
        **behind(text, starts, width, mask), use_cache=False, logits_to_keep=width * starts.shape[1]
    ).logits
    rows = together.view(2, -1, width, VOCABULARY + 1)[..., :VOCABULARY]

    for row, block in ((row, block) for row in range(2) for block in range(3)):
        prefix = text[row, : starts[row, block]].tolist()
        alone = CachedModel(masks, VOCABULARY)
        alone.prefill(prefix)
        logits = alone.read(torch.tensor([[prefix[-1]] + [mask] * width]))[1:]
        torch.testing.assert_close(rows[row, block], logits, rtol=1e-4, atol=1e-4)

        drafter = MaskFiller(CachedModel(masks, VOCABULARY), mask)
        drafter.model.prefill(prefix)
        reader = Text(prefix, len(prefix) + width, VOCABULARY, CPU)
        drafter.begin(reader)
        drafter.propose(width, Drawing(GREEDY, torch.Generator(), rows=False))
        assert reader.tokens()[len(prefix) :] == rows[row, block].argmax(-1).tolist()


def test_a_fit_resumes_where_it_was(
    plain: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four steps are four steps, killed in the fourth of them or not."""
    monkeypatch.setattr(loop, "_SAVED_STEPS", 2)
    works = [Work(tmp_path / name, "a recipe") for name in ("straight", "killed")]
    taken: list[int] = []

    def fit() -> Fit:
        model = LlamaForCausalLM(plain.config)
        model.load_state_dict(plain.state_dict())
        return Fit(model, Schedule(warm_up_steps=2), steps=4)

    def run(fit: Fit, work: Work, kill_at: int = 4) -> None:
        def loss(step: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            if step == kill_at:
                raise KeyboardInterrupt
            taken.append(step)
            ids = random_text(4, 16).roll(step, dims=1)
            return fit.model(ids, labels=ids).loss, {}

        def stage(path: Path) -> None:
            fit.run("fit", work, loss)
            path.touch()

        work.stage("fit", stage)

    straight, resumed = fit(), fit()
    run(straight, works[0])
    with pytest.raises(KeyboardInterrupt):
        run(fit(), works[1], kill_at=3)
    run(resumed, works[1])
    assert taken == [0, 1, 2, 3, 0, 1, 2, 2, 3]
    after = resumed.model.state_dict()
    for name, weights in straight.model.state_dict().items():
        assert torch.equal(weights, after[name]), name
        assert name.startswith("model.norm") or not torch.equal(weights, plain.state_dict()[name])


def test_a_stage_is_made_once_and_belongs_to_one_recipe(tmp_path: Path) -> None:
    made: list[Path] = []

    def make(path: Path) -> None:
        made.append(path)
        path.write_text("result")

    for _ in range(2):
        work = Work(tmp_path, "a recipe")
        assert work.stage("stage.pt", make).read_text() == "result"
        assert work.seconds["stage.pt"] >= 0
    assert len(made) == 1
    with pytest.raises(SpecsimError, match="another recipe"):
        Work(tmp_path, "another")


@pytest.mark.parametrize("script", [train_followers, eagle])
def test_a_family_that_is_not_there_is_said_in_a_line(
    script: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folders = ("--family", str(tmp_path / "nowhere"), "--work", str(tmp_path / "work"))
    monkeypatch.setattr("sys.argv", ["train", *folders])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 2
    assert re.search(r"error: .*nowhere.*\n\Z", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


def test_a_clock_that_was_cut_stops_no_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it is written, it is as it was."""
    work = Work(tmp_path, "a recipe")
    work.stage("stage.pt", lambda path: path.touch())
    before = (tmp_path / "stage.pt.seconds").read_text()

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", killed)
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        work.keep_time()
    assert (tmp_path / "stage.pt.seconds").read_text() == before


def test_alignment_helps_where_the_same_text_costs_less() -> None:
    """Costs are compared at one regret, whatever the thresholds."""

    def curve(*points: tuple[float, float]) -> list[dict[str, float]]:
        return [{"regret_nats": regret, "cost": cost} for regret, cost in points]

    before = curve((0.02, 0.9), (0.04, 0.7))
    assert helps(before, curve((0.01, 0.9), (0.05, 0.5)))
    # Cheaper at every threshold, but only since it writes what the target would not.
    assert not helps(before, curve((0.03, 0.85), (0.09, 0.6)))
    # Nothing to compare: it never comes as near to greedy decoding.
    assert not helps(before, curve((0.05, 0.1), (0.06, 0.1)))


def digests(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the script starts from, on little text and with small recipes."""
    texts = {"a.py": "w2 w3 w5 w7 " * 40, "b.py": "w11 w13 w17 " * 50}
    held_out = {"c.py": "w2 w5 w11 w13 w7 " * 900}
    monkeypatch.setattr(corpus, "training_texts", lambda: texts)
    monkeypatch.setattr(corpus, "held_out_texts", lambda: held_out)
    monkeypatch.setattr(judging, "HELD_OUT_BATCHES", 1)
    for module in (train_followers, eagle):
        for name, value in (("REQUESTS", 3), ("PROMPT", 8), ("NEW", 12)):
            monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(train_followers, "FollowersRecipe", lambda: TOY)
    monkeypatch.setattr(eagle, "EagleRecipe", lambda: TOY_HEAD)
    folder = tmp_path / "family"
    for seed, (name, layers) in enumerate({"target": 2, "middle": 1, "small": 1}.items()):
        build_model(folder / name, layers=layers, width=16, seed=seed)
    return folder


@pytest.mark.long
def test_the_script_from_end_to_end(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New members and the head beside the old members, the same ones from a run killed twice."""
    before = digests(family)

    def script(work: str) -> dict[str, str]:
        folders = ("--family", str(family), "--work", str(tmp_path / work))
        monkeypatch.setattr("sys.argv", ["followers", *folders])
        train_followers.main()
        return digests(family)

    runs = [script("one")]
    monkeypatch.setattr(loop, "_SAVED_STEPS", 1)
    taken: dict[str, list[int]] = {}
    # The first in the members' fit, the other in the head's; both in their last step but one.
    for module, name, last in ((train_followers, "masks_loss", 2), (eagle, "loss_at", 3)):
        loss, steps = getattr(module, name), taken.setdefault(name, [])

        def killed_at_last(*arguments: Any, loss: Any = loss, last: int = last, **_: Any) -> Any:
            if arguments[-1] == last:
                raise KeyboardInterrupt
            return loss(*arguments)

        def noted(*arguments: Any, loss: Any = loss, steps: list[int] = steps) -> Any:
            steps.append(arguments[-1])
            return loss(*arguments)

        monkeypatch.setattr(module, name, killed_at_last)
        with pytest.raises(KeyboardInterrupt):
            script("other")
        monkeypatch.setattr(module, name, noted)
    runs.append(script("other"))
    assert taken == {"masks_loss": [2], "loss_at": [3]}

    assert before.items() <= runs[0].items()
    record = json.loads((family / "followers.json").read_text())
    assert record["recipe"] == json.loads(json.dumps(dataclasses.asdict(TOY)))
    assert record["eagle"]["recipe"] == dataclasses.asdict(TOY_HEAD)
    assert record["data"]["greedy_tokens"] == 2 * 6 * 12
    new = {name for name in runs[0] if name not in before and name != "followers.json"}
    assert {name.split("/")[0] for name in new} == {*record["shipped"], "eagle"}
    assert all({run[name] for run in runs} == {runs[0][name]} for name in new)
    model = load(str(family / "masks"), CPU, torch.float32).model
    assert model.config.mask_token_id == VOCABULARY


def test_what_is_shipped_is_of_the_recipes_of_the_script() -> None:
    record = json.loads((FAMILY / "followers.json").read_text())
    for entry, recipe in ((record, FollowersRecipe()), (record["eagle"], eagle.EagleRecipe())):
        assert entry["recipe"] == json.loads(json.dumps(dataclasses.asdict(recipe)))
    assert all((FAMILY / name / "model.safetensors").is_file() for name in record["shipped"])
