"""What the front page and docs/extending.md show runs as it stands."""

import os
import re
import shlex
import subprocess
import sys

from tests.kit.pages import named_files, section, write
from utils import ROOT

README = (ROOT / "README.md").read_text()


def test_the_domain_example_pretrains_and_finetunes(cli, tmp_path, monkeypatch):
    files = named_files(section("Add a domain"))
    assert set(files) == {"domain/pendulum.yaml", "task/pendulum_swingup.yaml", "my_envs.py"}
    write(files, tmp_path / "my_configs")
    commands = re.findall(r"^python (\w+)\.py (.*)$", section("Add a domain"), re.M)
    assert [script for script, _ in commands] == ["pretrain", "finetune"]
    for script, args in commands:
        out = cli(script, *shlex.split(args.replace("my_configs", str(tmp_path / "my_configs"))))
        assert out.code == 0, out.err
    assert list(cli.root.glob("finetune/pendulum_swingup/amped/*/switching/seed_1/result.json"))

    monkeypatch.syspath_prepend(tmp_path / "my_configs")
    out = cli("pretrain", "domain.primal_task=my_envs:make")
    assert out.code == 0 and "obs 5, action 1" in out.out, out.err


def test_make_demo_trains_measures_and_draws(tmp_path):
    recipe = subprocess.run(
        ["make", "-n", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    lines = [
        line for line in recipe.splitlines() if "pretrain.py" in line or "-m analysis." in line
    ]
    assert len(lines) == 3
    for line in lines:
        for old, new in (
            ("preset=cpu", "preset=smoke"),
            ("750000", "480"),
            ("--mine-steps 4000", "--mine-steps 20"),
            ("pretrain.py", str(ROOT / "pretrain.py")),
        ):
            line = line.replace(old, new)
        _, *args = shlex.split(line)
        done = subprocess.run(
            [sys.executable, *args],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/demo.png").stat().st_size > 1000 and (
        tmp_path / "runs/demo.csv"
    ).exists()


def test_every_agent_and_preset_is_named():
    for group in ("agent", "preset", "surgery", "skills"):
        for path in (ROOT / "configs" / group).glob("*.yaml"):
            if path.stem != "default":
                assert path.stem in README, f"{group}={path.stem}"


def test_the_front_page_is_short_and_begins_with_two_commands():
    assert len(README.splitlines()) <= 160
    assert re.findall(r"^make \w+", README, re.M)[:2] == ["make demo", "make test"]
