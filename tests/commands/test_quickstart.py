"""What `make train` runs, in a few steps."""

import re
from dataclasses import replace

import pytest

from ogspr.commands import quickstart as module
from ogspr.commands.declared import Play, Quickstart
from ogspr.commands.policy import play
from ogspr.records.display import make_console
from ogspr.training.options import EvaluationOptions
from ogspr.training.presets import preset_options

pytestmark = pytest.mark.usefixtures("opengl")


def in_a_few_steps(preset, task):
    options = preset_options(preset, task)
    return replace(
        options,
        agent=replace(options.agent, random_steps=130, batch_size=4),
        agent_steps=140,
        env=replace(options.env, action_repeat=40),  # short episodes, and films of few pictures
        evaluation=EvaluationOptions(every=140, episodes=1, environments=1),
    )


def test_it_ends_with_a_curve_and_a_film_and_goes_on_with_what_is_there(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(module, "preset_options", in_a_few_steps)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setenv("PATH", "/usr/bin")
    run, console = tmp_path / "seed-0", make_console()
    module.quickstart(Quickstart(out=tmp_path), console)
    said = capsys.readouterr().out
    assert said.startswith("dmc:cartpole-swingup from pixels on the CPU: 140 agent steps")
    assert re.findall(r"^ +(\d+) +\d+\.\d ", said, re.M) == ["0", "140"]
    assert "random policy" in said
    film = run / "videos" / "quickstart.mp4"
    before = film.read_bytes()
    assert b"ftyp" in before[:16]
    assert "new run" in said
    assert re.search(r"^first +\. .*bin/activate$", said, re.M)  # `ogspr` is not found without

    play(Play(path=run, seed=0, workers=False), console)
    assert (run / "videos" / "best.mp4").exists()
    assert film.read_bytes() == before
    capsys.readouterr()

    film.unlink()
    with monkeypatch.context() as idle:
        idle.setattr(module, "train", not_again)
        module.quickstart(Quickstart(out=tmp_path), console)
        said = capsys.readouterr().out
        assert said.startswith(f"{run} is complete (140 agent steps)\n")
        assert "remove that folder, or choose another: ogspr quickstart --out" in said
        assert film.exists()

        idle.setattr(module, "play", not_again)
        module.quickstart(Quickstart(out=tmp_path), console)
        said = capsys.readouterr().out
        assert re.findall(r"^ +(\d+) +\d+\.\d ", said, re.M) == ["0", "140"]
        assert f"video       {film}\n" in said


def not_again(*_arguments, **_options):
    raise AssertionError("all is there already")
