"""An output may be a link: what belongs together lies beside the file that it leads to."""

from __future__ import annotations

from pathlib import Path

import specsim
from specsim.frontier import read_positions
from specsim.profiles import read_profile


def linked(folder: Path, name: str, file: str) -> tuple[Path, Path]:
    """A link of this name in the folder, and the file in another one that it leads to."""
    (folder / "runs").mkdir()
    link, path = folder / name, folder / "runs" / file
    link.symlink_to(Path("runs", file))
    return link, path


def models(family: dict[str, Path]) -> specsim.Models:
    return specsim.Models(str(family["target"]), str(family["draft"]), device="cpu", threads=1)


def test_traces_lie_beside_the_profile_itself(tiny_family: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w5 w6 w7\nw8 w9\n")
    link, path = linked(tmp_path, "latest.json", "a.json")
    measurement = specsim.Measurement(
        temperature=(1.0,),
        prompts=prompts,
        requests=(2,),
        max_new_tokens=8,
        gamma_max=2,
        repeats=1,
    )
    found = specsim.calibrate(link, models(tiny_family), measurement)
    assert found.path == path
    (measured,) = found.profile.acceptance
    assert sorted(path.parent.iterdir()) == [path, path.with_name(measured.trace.file)]
    for name in (link, path):
        assert read_profile(name).trace(name, measured).tokens == measured.tokens


def test_scores_are_written_as_the_file_itself_is_called(
    tiny_family: dict[str, Path], tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("w5 w6 w7\nw8 w9\n")
    link, path = linked(tmp_path, "latest.parquet", "a.csv")
    found = specsim.score(link, models(tiny_family), text, requests=2)
    assert found.path == path
    assert read_positions(path).requests == 2
    assert [each.name for each in path.parent.iterdir()] == ["a.csv"]
