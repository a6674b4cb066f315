"""Who answers the chunks of a sweep: processes of this machine, or a cluster through dask or ray.

joblib hands chunks to processes.  To a cluster they go as tasks of its own, which it does again by
itself where a worker dies.  joblib has ways to clusters, too, but one to dask that waits for ever
for a task that dask gave up, and one to ray that gives no result before all are there.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from specsim.api.progress import Progress, note
from specsim.checks import (
    InvalidArgumentError,
    SpecsimError,
    UnsupportedError,
    check_choice,
    integer,
)
from specsim.sweeps.chunks import AnsweredChunk, Chunk, answer_chunk

Backend = Literal["processes", "dask", "ray"]
BACKENDS: tuple[str, ...] = get_args(Backend)

# Workers that are lost so often in a row, with nothing answered between, are not lost by chance:
# a setting ends them, or they cannot work at all.
_MOST_LOSSES = 3
# Chunks that wait at a worker beside the one that it answers.
_AHEAD = 2
_SECONDS_TO_CONNECT = 10


class WorkersLostError(SpecsimError):
    """Workers were lost again and again; the message says how the last of them ended."""


@dataclass(frozen=True)
class Workers:
    """Where chunks are answered.

    backend : ``processes`` of this machine, a ``dask`` scheduler, or a ``ray`` cluster
    address : of the scheduler or the cluster; of ray None is the one that runs here, or a new one
    count : of processes; None: one for each core that this process may use
    """

    backend: Backend = "processes"
    address: str | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        check_choice("backend", self.backend, BACKENDS)
        if self.backend == "processes":
            if self.address is not None:
                raise InvalidArgumentError(
                    f"address {self.address} goes with backend dask or ray, not with processes"
                )
        elif self.count is not None:
            raise InvalidArgumentError(
                f"workers goes with backend processes, a {self.backend} cluster has its own"
            )
        if self.backend == "dask" and self.address is None:
            raise InvalidArgumentError(
                "address is missing: that of the dask scheduler, such as tcp://host:8786"
            )
        if self.count is not None:
            integer("workers", self.count, low=1)


def answered(
    open_chunks: Callable[[], Iterable[Chunk]], workers: Workers, progress: Progress
) -> Iterator[AnsweredChunk]:
    """Answers to chunks in the order in which they are ready.

    open_chunks : those that nobody has answered yet; asked again where workers were lost, so what
        is handed on must be counted as answered before the next is asked for

    Where workers are lost three times and nothing is answered between, chunks go out one at a time
    until the settings that end their worker are found.  Raises WorkersLostError where it is none.
    """
    hand_out = _HAND_OUT[workers.backend]
    losses = 0
    while True:
        try:
            handed_out, came = _Counted(open_chunks()), 0
            for each in hand_out(handed_out, workers):
                losses, came = 0, came + 1
                yield each
            if came == handed_out.count:
                return
            raise RuntimeError(f"{handed_out.count - came} answers never came")
        except SpecsimError:
            raise
        # Chunks turn what fails in them into answers, so whatever arrives here is a worker's end;
        # dask says so with a cancellation where its scheduler is gone.
        except (Exception, CancelledError) as error:
            losses += 1
            reason = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
            note(progress, f"a worker was lost, what it had is done again ({reason})")
            if losses == _MOST_LOSSES:
                lost = WorkersLostError(
                    f"workers were lost {losses} times and nothing was answered between; the same "
                    f"command goes on where this one was ({reason})"
                )
                yield from _one_by_one(open_chunks, workers, lost)
                losses = 0


def _one_by_one(
    open_chunks: Callable[[], Iterable[Chunk]], workers: Workers, lost: WorkersLostError
) -> Iterator[AnsweredChunk]:
    """Chunks alone, up to the first that ends its worker; of that one all settings that do not.

    Raises ``lost`` where a worker ends at nothing, too, or at no setting alone.
    """
    for chunk in open_chunks():
        found = _alone(chunk, workers)
        if found is None:
            if _alone(replace(chunk, settings=()), workers) is None:
                raise lost
            fatal = tuple(
                place
                for place, setting in enumerate(chunk.settings)
                if _alone(replace(chunk, settings=(setting,)), workers) is None
            )
            found = _alone(replace(chunk, fatal=fatal), workers)
            if found is None:
                raise lost
            yield found
            return
        yield found


def _alone(chunk: Chunk, workers: Workers) -> AnsweredChunk | None:
    """The answer to one chunk; None where its worker was lost."""
    try:
        return next(iter(_HAND_OUT[workers.backend]([chunk], workers)), None)
    except SpecsimError:
        raise
    except (Exception, CancelledError):
        return None


class _Counted:
    """Chunks, and how many of them were asked for, by whatever thread."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self._chunks, self.count = chunks, 0

    def __iter__(self) -> Iterator[Chunk]:
        for each in self._chunks:
            self.count += 1
            yield each


def _by_processes(chunks: Iterable[Chunk], workers: Workers) -> Iterator[AnsweredChunk]:
    import joblib

    count: int = joblib.cpu_count() if workers.count is None else workers.count
    if count == 1:
        yield from map(answer_chunk, chunks)
        return
    # A chunk is already as much as one worker should have at a time: no batches of them.
    parallel = joblib.Parallel(
        n_jobs=count,
        backend="loky",
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch=(1 + _AHEAD) * count,
    )
    yield from parallel(joblib.delayed(answer_chunk)(each) for each in chunks)


def _by_dask(chunks: Iterable[Chunk], workers: Workers) -> Iterator[AnsweredChunk]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise _missing("dask") from None
    try:
        client = Client(workers.address, timeout=_SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, ImportError) as error:
        raise _unreachable(workers, error) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_SECONDS_TO_CONNECT)
        except TimeoutError as error:
            raise _unreachable(workers, error) from None
        most = sum(client.ncores().values()) * (1 + _AHEAD)
        waiting = as_completed([], loop=client.loop)
        for chunk in chunks:
            waiting.add(client.submit(answer_chunk, chunk, pure=False))
            if waiting.count() >= most:
                yield next(waiting).result()
        for each in waiting:
            yield each.result()


def _by_ray(chunks: Iterable[Chunk], workers: Workers) -> Iterator[AnsweredChunk]:
    try:
        import ray
    except ImportError:
        raise _missing("ray") from None
    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(address=workers.address, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _unreachable(workers, error) from None
    try:
        task = ray.remote(answer_chunk)
        most = max(1, int(ray.cluster_resources().get("CPU", 1))) * (1 + _AHEAD)
        waiting: list[Any] = []
        for chunk in chunks:
            waiting.append(task.remote(chunk))
            if len(waiting) == most:
                (ready,), waiting = ray.wait(waiting, num_returns=1)
                yield ray.get(ready)
        while waiting:
            (ready,), waiting = ray.wait(waiting, num_returns=1)
            yield ray.get(ready)
    finally:
        if mine:
            ray.shutdown()


_HAND_OUT: Mapping[Backend, Callable[[Iterable[Chunk], Workers], Iterator[AnsweredChunk]]] = {
    "processes": _by_processes,
    "dask": _by_dask,
    "ray": _by_ray,
}


def _missing(backend: str) -> UnsupportedError:
    return UnsupportedError(
        f"backend {backend} needs a package that is not installed: pip install 'specsim[{backend}]'"
    )


def _unreachable(workers: Workers, error: Exception) -> InvalidArgumentError:
    what = "scheduler" if workers.backend == "dask" else "cluster"
    reason = " ".join(str(error).split())
    return InvalidArgumentError(
        f"address {workers.address}: no {workers.backend} {what} answers there ({reason})"
    )
