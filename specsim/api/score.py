"""``specsim.score``: labelled positions of held-out text, for ``specsim.defer``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from specsim.api.models import Models
from specsim.api.progress import Progress, quiet, steps
from specsim.api.result import Result, Row
from specsim.checkpoint import Checkpoint
from specsim.checks import InvalidArgumentError, integer
from specsim.files import check_replaceable
from specsim.frontier import LabelledPositions, read_positions


@dataclass(frozen=True, kw_only=True)
class Scores(Result):
    """Both models on their own, and the file that has every position.

    path : the file that was written
    """

    schema: ClassVar[str] = "specsim.score"

    path: Path
    positions: LabelledPositions

    def rows(self) -> list[Row]:
        draft, target = self.positions.losses("0-1")
        return [
            {
                "requests": self.positions.requests,
                "positions": self.positions.positions,
                "target_accuracy": 1 - float(target.mean()),
                "draft_accuracy": 1 - float(draft.mean()),
                "mean_tv": float(self.positions.tv.mean()),
            }
        ]

    def summary(self) -> Row:
        return {"positions_file": str(self.path)}


def score(
    out: Path,
    models: Models = Models(),
    text: Path | None = None,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    requests: int = 128,
    tokens: int = 128,
    *,
    command: str = "specsim.score",
    progress: Progress = quiet,
) -> Scores:
    """Let both models read text whose every next token is known, and write what they think of it.

    Kept are some numbers per position, never a distribution.  From them every deferral rule can be
    judged at every threshold afterwards; rules that cut single tokens are measured now, at a fixed
    grid of thresholds (``calibrate.measure.score.fixed_rules``).  A run that was killed goes on
    where it was when it is started again with the same arguments.

    out : .parquet or .csv
    text : one a line, or .jsonl with the key prompt; None is the held-out modules
    requests : texts, at most
    tokens : tokens of a text, at most
    command : what was typed, for the record
    """
    out = check_replaceable(Path(out), "out")
    if out.suffix not in (".parquet", ".csv"):
        raise InvalidArgumentError(f"out {out}: the name must end in .parquet or .csv")
    # Intervals are over texts.
    requests, tokens = integer("requests", requests, low=2), integer("tokens", tokens, low=2)
    models.require_draft_model("score")
    pair = models.load()
    pair.target.require_causal("score")
    from calibrate.measure import score as measure
    from calibrate.models.prompts import find_prompts
    from calibrate.models.sampling import Sampling

    sampling = Sampling(temperature, top_k, top_p)
    if tokens > pair.context:
        raise InvalidArgumentError(
            f"tokens must be <= {pair.context}, the context of the models, got {tokens}"
        )
    found = find_prompts(text, pair.target.tokenizer, tokens, requests)
    texts = [words for words in found if len(words) > 1]
    if len(texts) < 2:
        where = "the held-out modules have" if text is None else f"{text} has"
        raise measure.ScoreError(
            f"{where} {len(texts)} texts of at least two tokens, two are needed"
        )
    target, draft = pair.target.description, pair.draft.description
    weights = next(pair.target.model.parameters())
    checkpoint = Checkpoint.beside(
        *(out, "score", target.sha256, draft.sha256, str(weights.dtype), str(weights.device)),
        *(asdict(sampling), texts),
    )
    advance = steps(progress, "score", len(texts))
    frame = measure.score(*pair.cached(), texts, sampling, checkpoint, advance)
    about = {
        "target": target.name,
        "draft": draft.name,
        "target_sha256": target.sha256,
        "draft_sha256": draft.sha256,
        **asdict(sampling),
        "command": command,
    }
    measure.write_positions(frame, out, about)
    checkpoint.done()
    few = f"only {len(texts)} texts for {requests} requests"
    return Scores(
        path=out,
        positions=read_positions(out),
        inputs={
            "models": models,
            "text": None if text is None else str(text),
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "requests": requests,
            "tokens": tokens,
        },
        warnings=(few,) if len(texts) < requests else (),
    )
