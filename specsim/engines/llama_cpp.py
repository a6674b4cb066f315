"""llama.cpp 0c1e57098 (2026-10-01): flags of ``llama-server``.

A draft model alone starts nothing: ``--spec-type`` is ``none`` by default and only DFlash files and
those with layers for next tokens are recognised by their content (``common/speculative.cpp``).
``--spec-draft-n-max`` is the one draft length; ``--draft-max`` is an error there.
"""

from __future__ import annotations

import shlex

from specsim.engines.drafting import Configuration, Drafting, Engine, Method, Order
from specsim.engines.schedule import in_words

_METHODS: dict[Method, Drafting] = {
    "draft_model": Drafting("draft-simple"),
    "eagle3": Drafting("draft-eagle3"),
    "mtp": Drafting("draft-mtp", model="optional"),
    "dflash": Drafting("draft-dflash"),
    "ngram": Drafting("ngram-simple", model="none"),
}


def _write(order: Order) -> Configuration:
    """One line of flags."""
    drafting, length = order.drafting, str(order.one_length)
    flags = ["--spec-type", drafting.word]
    if order.draft:
        flags += ["-md", order.draft]
    # The draft of ngram-simple is its m-gram, whatever --spec-draft-n-max says.
    looked_up = drafting.model == "none"
    flags += ["--spec-ngram-simple-size-m" if looked_up else "--spec-draft-n-max", length]
    if order.lookup_max is not None:
        flags += ["--spec-ngram-simple-size-n", str(order.lookup_max)]
    notes = [
        f"llama.cpp takes one draft length, here the best at batch {order.batch}; by batch, in "
        f"few ranges, they would be {in_words(order.schedule)}"
    ]
    if not looked_up:
        notes.append("drafts end early only where --spec-draft-p-min is above 0; its default is 0")
    if drafting.word in ("draft-simple", "draft-eagle3"):
        notes.append(
            "llama.cpp runs the drafter once more a round than planned: over what was verified, "
            "before it drafts"
        )
    if order.draft and not order.draft.endswith(".gguf"):
        notes.append(f"-md takes a file: convert {order.draft} to GGUF, and name that")
    return Configuration(shlex.join(flags), tuple(notes))


ENGINE = Engine(
    "llama.cpp",
    "llama.cpp 0c1e57098 of 2026-10-01",
    _METHODS,
    _write,
    lookups=("lookup_max",),
    most_requests="--parallel",
)
