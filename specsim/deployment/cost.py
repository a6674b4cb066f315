"""Seconds of everything that a batch does in a deployment (a ``LoadCost``), run by run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil

from specsim.batching.cost import NoRoomError
from specsim.batching.tokens_per_block import TokensPerBlock
from specsim.checks import Floats
from specsim.deployment.deployment import Deployment, draft_parallelism
from specsim.deployment.drafters import Drafter, DraftModel, Medusa, Ngram
from specsim.deployment.heads import DraftShapes, draft_shapes
from specsim.deployment.memory import CardMemory, card_memory
from specsim.hardware.parallel import Parallelism
from specsim.hardware.roofline import Efficiency, Roofline, roofline
from specsim.hardware.shapes import Shape
from specsim.profiles import Role


@dataclass(frozen=True)
class Runs:
    """Equal runs of one model in a round.

    count : how many, in the mean
    run : one of them
    turns : times that the round waits for each, which is more than once for a drafter behind a
        pipeline: it drafts for one part of the batch after the other
    """

    count: float
    run: Roofline
    turns: int = 1

    @property
    def seconds(self) -> float:
        return self.count * self.turns * self.run.seconds


@dataclass(frozen=True)
class DeployedCost:
    """Rounds with one drafter of a deployment, or plain decoding alone.

    drafter : None where nothing drafts
    longest : widest target run that will be asked for, gamma + 1 of the largest gamma
    always : drafts that are made however many are verified, as vLLM's V2 model runner makes those
        of its longest length at every batch (``specsim.engines.vllm.runner_doubts``); None: as many
        as are verified

    Raises NoRoomError where the requests, with caches up to the end of the round, do not
    fit beside the weights.
    """

    deployment: Deployment
    drafter: Drafter | None
    longest: int
    always: int | None = None

    def draft_runs(self, gamma: int, batch: int, context: float) -> list[Runs]:
        """The runs of the drafter in a round with ``gamma`` drafts; with none, those that keep its
        cache in step.
        """
        drafter = self.drafter
        if drafter is None:
            return []
        if gamma:
            self.check_room(gamma, batch, context)
        made = gamma if self.always is None else self.always
        # A run that makes all drafts has places for all of them; the first of several reads what
        # was verified.
        positions = drafter.first_positions(made if drafter.runs(made) == 1 < made else gamma)
        shapes = self._shapes(made) if positions else None
        if shapes is None:
            return []
        parts = self._parts(batch)
        size = -(-batch // parts)
        of_draft = self._draft_parallel, self._draft_efficiency

        def runs(shape: Shape, count: int, tokens: int, context: float, logits: int) -> Runs:
            return Runs(count, self._run(shape, tokens, size, context, logits, *of_draft), parts)

        # Tokens are drafted behind the last accepted one alone, or at every position at once.
        drafted = made if drafter.runs(made) == 1 < made else 1
        found = [runs(shapes.first, 1, positions, context, min(drafted, positions))]
        if later := drafter.runs(made) - 1 if made else 0:
            # Later run i has i more tokens in the cache, made / 2 in the mean.
            found.append(
                runs(shapes.later, later, drafter.width, context + made / 2, drafter.width)
            )
        return found

    def target_runs(self, gamma: int, batch: int, context: float) -> list[Runs]:
        """The target run of a round with ``gamma`` drafts, or its cases with their chances.

        Where drafts must be found, rounds in which no request of a run has one are plain steps, and
        the others are as wide as the mean of their requests: those without a draft verify nothing.
        """
        drafter = self.drafter
        self.check_room(gamma, batch, context)
        if not gamma or drafter is None:
            return [Runs(1.0, self._target(1, batch, context))]
        if not isinstance(drafter, Ngram):
            return [Runs(1.0, self._target(drafter.verified(gamma), batch, context))]
        together = -(-self._of_group(batch) // self._parts(batch))
        nothing = (1.0 - drafter.match) ** together
        found = [Runs(nothing, self._target(1, batch, context))] if nothing else []
        if chance := 1.0 - nothing:
            drafts = drafter.match * float(drafter.lengths(gamma).sum()) / chance
            narrow, wide = divmod(min(drafts, gamma), 1.0)
            for more, share in ((0, 1.0 - wide), (1, wide)):
                if share:
                    run = self._target(1 + int(narrow) + more, batch, context)
                    found.append(Runs(chance * share, run))
        return found

    def memory(self, loaded: Drafter | None, context: int, gamma: int | None = None) -> CardMemory:
        """What stands on a card with the drafter beside the target, or without one.

        gamma : drafts that a request has room for; None: as many as will be asked for
        """
        # Positions that are verified are in the cache until it is known which are accepted.
        most = self.longest - 1 if gamma is None else gamma
        room = loaded.verified(most) - 1 if loaded else 0
        key = loaded is None, context, room
        if key not in self._memories:
            self._memories[key] = card_memory(self.deployment, loaded, context, room)
        return self._memories[key]

    def check_room(self, gamma: int, batch: int, context: float) -> None:
        """Raises NoRoomError where rounds with ``gamma`` drafts have none; plain decoding has no
        drafter loaded.
        """
        loaded = self.drafter if gamma else None
        memory = self.memory(loaded, ceil(context), gamma)
        if batch <= memory.largest_batch:
            return
        card, room = self.deployment.card, memory.largest_batch
        beside = f" with {loaded.label} beside it" if loaded else ""
        needed = memory.target + memory.draft + memory.request * self._of_group(batch)
        remedy = f"room for {room:,}" if room else "it may fit on more cards, or in another dtype"
        raise NoRoomError(
            f"{self.deployment.name}{beside}, batch {batch:,} and {ceil(context):,} tokens a "
            f"request need {needed / 2**30:,.1f} GiB a card; {card.name} has "
            f"{card.memory / 2**30:g} GiB, of which {memory.usable / 2**30:.1f} GiB are for them "
            f"(utilisation, reserve): {remedy}"
        )

    def lookup_s(self, batch: int) -> float:
        """Host time of looking drafts up for every request; groups have hosts of their own."""
        if not isinstance(self.drafter, Ngram):
            return 0.0
        return 1e-6 * self.drafter.host_us * self._of_group(batch)

    def draft_s(self, gamma: int, batch: int, context: float, bonus: float) -> float:
        runs = self.draft_runs(gamma, batch, context)
        return sum(each.seconds for each in runs) + self.lookup_s(batch)

    def verify_s(self, gamma: int, batch: int, context: float) -> float:
        return sum(each.seconds for each in self.target_runs(gamma, batch, context))

    def overhead_s(self, gamma: int, batch: int) -> float:
        host = self.deployment.host
        return host.step_s + (host.round_s if gamma else 0.0)

    def loaded_s(self, batch: int, context: float) -> float:
        # A look-up keeps nothing in step, so none is made where nothing is drafted.
        return sum(each.seconds for each in self.draft_runs(0, batch, context))

    def room(self, context: int, gamma: int) -> tuple[int, int]:
        """The largest batch with the drafter and so many drafts beside the target, and without."""
        loaded, alone = (self.memory(each, context, gamma) for each in (self.drafter, None))
        return loaded.largest_batch, alone.largest_batch

    def prefill_s(self, prompt: int) -> tuple[float, float]:
        """Seconds of reading a prompt of one request in one run of the target, and with a run of
        the drafter over it, where that has a cache to fill; both give one distribution.
        """
        plain = self.run_s("target", prompt, 1, 0, 1) + self.deployment.host.step_s
        if not self.drafter_reads_prompts:
            return plain, plain
        return plain, plain + self.run_s("draft", prompt, 1, 0, 1)

    @property
    def drafter_reads_prompts(self) -> bool:
        """Whether it has a cache that prompts fill."""
        drafter = self.drafter
        return (
            drafter is not None and drafter.first_positions(1) > 1 and self._shapes(1) is not None
        )

    def run_s(self, model: Role, tokens: int, batch: int, context: float, logits: int) -> float:
        """A run of the target, or of a drafter that reads prompts, over so many tokens of each of
        ``batch`` sequences, the last ``logits`` of which get a distribution.
        """
        deployment = self.deployment
        # Tokens of a prompt are not as much alike as drafts, which ``routing_exponent`` is of.
        if model == "target":
            of_target = deployment.parallel, deployment.efficiency
            run = self._run(deployment.shape, tokens, batch, context, logits, *of_target, 1.0)
            return run.seconds
        shapes = self._shapes(1)
        assert shapes is not None, "asked for where a drafter reads prompts"
        of_draft = self._draft_parallel, self._draft_efficiency
        return self._run(shapes.first, tokens, batch, context, logits, *of_draft, 1.0).seconds

    def gains(self, gains: TokensPerBlock) -> TokensPerBlock:
        """What a round gains of drafts that must be found: those that are there, as far as they
        go; every token after them is one of the target's.
        """
        drafter = self.drafter
        if not isinstance(drafter, Ngram):
            return gains
        steps = gains.tokens[1:] - gains.tokens[:-1]
        tokens = gains.tokens.copy()
        for gamma in range(1, tokens.size):
            reached: Floats = drafter.lengths(gamma)
            tokens[gamma] = 1.0 + drafter.match * float(reached @ steps[:gamma])
        return replace(gains, tokens=tokens)

    def _of_group(self, batch: int) -> int:
        """Requests of the busiest group of cards."""
        return -(-batch // self.deployment.parallel.data)

    def _parts(self, batch: int) -> int:
        """Parts that a pipeline works on at once."""
        return min(self.deployment.parallel.pipeline, self._of_group(batch))

    # What was worked out already: sweeps ask for the same runs again and again.
    @cached_property
    def _draft_parallel(self) -> Parallelism:
        assert self.drafter is not None, "asked for where something drafts"
        return draft_parallelism(self.deployment, self.drafter)

    @cached_property
    def _draft_efficiency(self) -> Efficiency:
        """Of the drafter's runs, which some engines start kernel by kernel."""
        own, drafter = self.deployment.efficiency, self.drafter
        if not isinstance(drafter, DraftModel) or drafter.eager_us is None:
            return own
        return replace(own, graph_tokens=0, eager_layer_s=1e-6 * drafter.eager_us)

    @cached_property
    def _memories(self) -> dict[tuple[bool, int, int], CardMemory]:
        return {}

    @cached_property
    def _shapes_by_gamma(self) -> dict[int, DraftShapes | None]:
        return {}

    @cached_property
    def _runs(
        self,
    ) -> dict[tuple[int, int, int, int, int | None, Parallelism, Efficiency, float], Roofline]:
        return {}

    def _shapes(self, gamma: int) -> DraftShapes | None:
        assert self.drafter is not None, "asked for where something drafts"
        # Medusa alone reads more with more drafts; others share their shapes.
        key = gamma if isinstance(self.drafter, Medusa) else 0
        if key not in self._shapes_by_gamma:
            self._shapes_by_gamma[key] = draft_shapes(self.drafter, self.deployment.shape, gamma)
        return self._shapes_by_gamma[key]

    def _target(self, tokens: int, batch: int, context: float) -> Roofline:
        deployment = self.deployment
        of_target = deployment.parallel, deployment.efficiency
        return self._run(deployment.shape, tokens, batch, context, None, *of_target)

    def _run(
        self,
        shape: Shape,
        tokens: int,
        batch: int,
        context: float,
        logits: int | None,
        parallel: Parallelism,
        efficiency: Efficiency,
        routing_exponent: float | None = None,
    ) -> Roofline:
        deployment, before = self.deployment, ceil(context)
        exponent = deployment.routing_exponent if routing_exponent is None else routing_exponent
        key = id(shape), tokens, batch, before, logits, parallel, efficiency, exponent
        found = self._runs.get(key)
        if found is None:
            found = self._runs[key] = roofline(
                shape,
                deployment.card,
                tokens,
                batch,
                before,
                logits=logits,
                efficiency=efficiency,
                parallel=parallel,
                interconnect=deployment.link,
                imbalance=deployment.imbalance,
                routing_exponent=exponent,
            )
        return found
