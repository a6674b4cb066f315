"""How likely an engine was to accept drafts at every position of a text that it wrote.

Given the text, each position has a probability of its own (Leviathan23 A.2; see
``specsim.rules.acceptance_laws``).  Behind the text an engine's last round drafts on, and
there the same follows the draft's own words.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from calibrate.decode.engine import CachedModel
from calibrate.models.sampling import Sampling
from specsim.acceptance import AcceptanceLaw
from specsim.checks import Floats
from specsim.rules import Distributions
from specsim.rules.acceptance_laws import acceptance_given

# The laws that vLLM has, by its ``draft_sample_method``.
LAWS: dict[str, AcceptanceLaw] = {"greedy": "greedy-drafts", "probabilistic": "ratio-test"}


@torch.inference_mode()
def acceptance_rates(
    target: CachedModel,
    draft: CachedModel,
    prompt: Sequence[int],
    text: Sequence[int],
    behind: int,
    sampling: Sampling,
    law: AcceptanceLaw,
    random: torch.Generator,
) -> Floats:
    """P(accepted) at each token of the text, and of ``behind`` drafts more; (T + behind,).

    Within the text: that the draft's token stood, given the token that came out.  Behind it: that
    the draft's own token stands, which for sampled drafts is drawn here.

    vLLM 0.32.0 filters the target's distribution by top-k and top-p, and draws drafts from the
    draft's at the temperature alone (``v1/spec_decode/llm_base_proposer.py``,
    ``compute_probs_and_sample_next_token``).
    """
    read = torch.tensor([[*prompt, *text]], device=target.device)
    rows = []
    for model in (target, draft):
        model.reset()
        rows.append(model.read(read)[len(prompt) - 1 :])
    tokens = torch.tensor(text, device=target.device)
    unfiltered = Sampling(sampling.temperature)
    p, q = sampling.probabilities(rows[0]), unfiltered.probabilities(rows[1])
    found = acceptance_given(law, Distributions(p[:-1], q[:-1]), tokens).tolist()
    ends = [each[-1:] for each in rows]
    for _ in range(behind):
        p, q = sampling.probabilities(ends[0]), unfiltered.probabilities(ends[1])
        if law == "greedy-drafts":
            token = ends[1].argmax(-1, keepdim=True)
            rate = p.gather(1, token)
        else:
            token = torch.multinomial(q, 1, generator=random)
            rate = (p.gather(1, token) / q.gather(1, token)).clamp(max=1)
        found.append(float(rate))
        ends = [model.read(token)[-1:] for model in (target, draft)]
    return np.array(found)
