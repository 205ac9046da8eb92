"""What is told of a trained policy beside its weights: a card in Markdown and a strip of its skills."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from PIL import Image

from agent.policy import actor_prefix
from analysis.film import film_skills
from analysis.maze.episodes import load as load_maze
from analysis.maze.pictures import draw_figure, panel_of
from analysis.text import markdown_table, short_commit
from run.files import require_result
from run.identity import unused
from utils import SNAPSHOT_FORMAT, UserError, load_snapshot, save_torch, write_atomic

# Of a run, what another machine need not know: its paths and how it was watched.
PRIVATE = ("run_root", "snapshot", "device", "wandb_project")
SHOWN = ("return_mean", "return_std", "skill_variance", "coverage", "mi_grid", "success")
STRIP = {"size": 72, "steps": 200, "skills": 8}  # pixels of a picture, steps, rows at most
COLOURS = 64  # of a strip: a fifth of the bytes


def read_run(run: Path) -> tuple[dict[str, Any], dict[str, Any], Path]:
    """result.json, the last snapshot and its file, of a finished run."""
    if not (run / "result.json").is_file():
        raise UserError(f"{run} is no finished run; give the directory that holds result.json")
    result = require_result(run)
    path = run / "snapshots" / str(result.get("snapshot"))
    return result, load_snapshot(path), path


def words_of(config: dict[str, Any]) -> list[str]:
    """The words of the run's command that do not name a place of somebody's machine."""
    return [word for word in config["overrides"] if word.partition("=")[0] not in PRIVATE]


def command_of(config: dict[str, Any]) -> str:
    return shlex.join(["python", f"{config['phase']}.py", *words_of(config)])


def trimmed(payload: dict[str, Any]) -> dict[str, Any]:
    """A snapshot with the weights that act, the encoder's and the selector's among them, and
    without paths."""
    config = payload["config"]
    acting = (actor_prefix(config), "encoder.")
    kept = {key: value for key, value in payload["learner"].items() if key.startswith(acting)}
    config = {**config, "overrides": words_of(config), "run_root": "runs", "device": "cpu"}
    if config.get("snapshot"):
        config["snapshot"] = Path(config["snapshot"]).name
    told = {key: payload[key] for key in ("versions", "frame", "seed", "agent", "domain", "spec")}
    return {**told, "config": config, "learner": kept, "objective": {}, "skills": payload["skills"]}


def save_trimmed(path: Path, payload: dict[str, Any]) -> None:
    save_torch(path, {**trimmed(payload), "kind": "snapshot", "format": SNAPSHOT_FORMAT})


def draw_strip(snapshot: Path, payload: dict[str, Any], out: Path) -> None:
    """The skills in one picture: trajectories in a maze, else stills of episodes from one start."""
    config = payload["config"]
    if config["learner"]["name"] == "ppo" and config["phase"] == "pretrain":
        draw_figure([panel_of(load_maze(snapshot), config["agent"]["name"])], out)
        return
    skills = payload["spec"]["skill_dim"]
    one_hot = config["agent"]["skill_space"] == "one_hot"
    film_skills(
        argparse.Namespace(
            snapshot=snapshot,
            out=out.parent,
            steps=STRIP["steps"],
            seed=None,
            size=STRIP["size"],
            only=list(range(min(skills, STRIP["skills"])))
            if one_hot
            else [0, 1, 2, 3]
            if skills
            else None,
            env=None,
            stills=True,
        )
    )
    strip = out.parent / "filmstrip.png"
    image = Image.open(strip).quantize(COLOURS, dither=Image.Dither.NONE)
    write_atomic(out, lambda file: image.save(file, "PNG", optimize=True))
    strip.unlink()


def measures(result: dict[str, Any]) -> dict[str, str]:
    final = result["final"]
    return {key: f"{final[key]:.4g}" for key in SHOWN if isinstance(final.get(key), int | float)}


def settings(config: dict[str, Any]) -> dict[str, str]:
    """The keys that say what the policy is, in a line each."""
    chosen = {
        "agent": config["agent"]["name"],
        "trained on": config.get("task", config["domain"]).get("name"),
        "phase": config["phase"],
        "preset": config["preset"]["name"],
        "skills": f"{config['skill_dim']} ({config['agent']['skill_space']})",
        "learner": f"{config['learner']['name']}, {config['learner']['hidden_dim']} wide",
        "surgery": config["surgery"]["name"],
        "seed": str(config["seed"]),
    }
    if config["phase"] == "finetune":
        used = {k: v for k, v in config["skills"].items() if not unused(f"skills.{k}", config)}
        chosen["rule of skills"] = ", ".join(f"{k} {v}" for k, v in used.items())
    return chosen


def card(result: dict[str, Any], payload: dict[str, Any], load: str, picture: str) -> str:
    """`load`: what load_policy is given; `picture`: the strip's file, beside the card."""
    config, git = payload["config"], result.get("git") or {}
    about = {
        **settings(config),
        "frames": f"{payload['frame']:,}",
        "commit": short_commit(git["commit"], git["dirty"]) if git else "unknown",
        "libraries": ", ".join(f"{k} {v}" for k, v in payload["versions"].items()),
    }
    weights = sum(t.numel() for t in trimmed(payload)["learner"].values())
    return "\n".join(
        [
            f"# {config['agent']['name']} on {about['trained on']}",
            "",
            f"A policy of {weights:,} numbers: observation {payload['spec']['obs_dim']}, action "
            f"{payload['spec']['action_dim']}, skill {payload['spec']['skill_dim']}. "
            "Only what acts is here; critics and the method's own networks are not.",
            "",
            f"![its skills]({picture})",
            "",
            "```python",
            "from utils import load_policy",
            "",
            f'policy = load_policy("{load}")',
            f"action = policy.act(obs{', skill=0' if config['agent']['skill_space'] == 'one_hot' else ''})",
            "```",
            "",
            "Made by:",
            "",
            "```text",
            command_of(config),
            "```",
            "",
            markdown_table(["setting", "value"], [[k, str(v)] for k, v in about.items()]),
            "",
            "At the last frame:",
            "",
            markdown_table(["measure", "value"], [list(pair) for pair in measures(result).items()]),
            "",
        ]
    )
