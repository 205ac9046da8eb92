"""Which skill of a snapshot does what you type? A reward as an expression, scored on every skill.

    python -m analysis.prompt SNAPSHOT "speed - 0.1 * abs(height - 1)"

Every skill plays the same starts; the ranking is printed and the best skill filmed. --finetune N
then fine-tunes that skill on the expression as a task. docs/prompt.md has the quantities of each
domain.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from agent.policy import Policy, policy_from, snapshot_of
from analysis.film import STEPS, film_skills
from envs.prompted import QUANTITIES, expression, finite, kind_of, quantities
from run.build import make_env
from run.cli.console import Parser, at_least
from run.cli.guard import run_command
from run.evaluation import EVAL_SKILLS
from utils import ROOT, UserError, load_snapshot, stream_seed, write_text

EPISODES = 3
SHOWN = 10  # lines of the ranking


class Scored(NamedTuple):
    number: int  # in the panel of skills
    skill: np.ndarray
    returns: np.ndarray  # (episodes,)

    @property
    def mean(self) -> float:
        return float(self.returns.mean())


def score(
    policy: Policy, name: str, text: str, *, episodes: int, steps: int, seed: int
) -> list[Scored]:
    """What every skill earns, the best first. All of them begin at the same starts."""
    kind, config = kind_of(name), policy.config
    pays = expression(text, kind)
    env = make_env(name, seed, config)
    rng = np.random.default_rng(stream_seed(config["seed"], "eval skills"))
    found = []
    panel = policy.space.panel(rng, EVAL_SKILLS)
    for number, skill in enumerate(tqdm(panel, desc="skills", disable=None)):
        returns = []
        for episode in range(episodes):
            env.seed(stream_seed(seed, "prompt", episode))
            time_step, total = env.reset(), 0.0
            native: Any = getattr(env, "unwrapped", env)
            native = getattr(native, "unwrapped", native)
            for _ in range(steps):
                time_step = env.step(policy.act(time_step.observation, skill))
                value = pays(quantities(kind, native))
                total += float(np.ravel(finite(value, text))[0])
                if time_step.last():
                    break
            returns.append(total)
        found.append(Scored(number, skill, np.array(returns)))
    env.close()
    return sorted(found, key=lambda each: -each.mean)


def ranking(scored: list[Scored]) -> str:
    lines = [f"{'skill':>7} {'return':>10} {'std':>8}"]
    for each in scored[:SHOWN]:
        lines.append(f"{each.number:>7} {each.mean:>10.2f} {each.returns.std():>8.2f}")
    if len(scored) > SHOWN:
        lines.append(f"{'...':>7} {scored[-1].mean:>10.2f}           (the last of {len(scored)})")
    return "\n".join(lines)


# -------------------------------------------------------------------------------------- fine-tuning


def task_name(domain: str, text: str) -> str:
    """`walker_prompt_1a2b3c4d`: the same expression is the same task."""
    plain = re.sub(r"\s+", "", text)
    return f"{domain}_prompt_{hashlib.sha256(plain.encode()).hexdigest()[:8]}"


def write_task(out: Path, domain: str, env: str, text: str) -> str:
    """A task of the user's own for --config-dir: a yaml, and the function that it names."""
    name = task_name(domain, text)
    write_text(
        out / f"{name}.py",
        f'"""The reward {text!r} as a task; made by python -m analysis.prompt."""\n\n'
        "from envs.prompted import prompted\n\n\n"
        f"def make(seed):\n    return prompted({env!r}, {text!r}, seed)\n",
    )
    write_text(
        out / "task" / f"{name}.yaml",
        "# @package _global_\n"
        f"defaults:\n  - override /domain: {domain}\n\n"
        f"task: {{name: {name}, domain: {domain}, env: '{name}:make'}}\n",
    )
    return name


def finetune_command(
    snapshot: str, payload: dict[str, Any], best: Scored, task: str, frames: int, out: Path
) -> list[str]:
    config = payload["config"]
    words = [
        f"agent={config['agent']['name']}",
        f"task={task}",
        f"preset={config['preset']['name']}",
        f"snapshot={snapshot}",
        f"num_train_frames={frames}",
        f"run_root={out}",
    ]
    if config["agent"]["skill_space"] == "one_hot":
        words += ["skills=fixed", f"skills.index={best.number}"]
    return ["finetune.py", "--config-dir", str(out), *words]


def fine_tune(command: list[str]) -> None:
    print("\n" + shlex.join(["python", *command]), flush=True)
    done = subprocess.run([sys.executable, str(ROOT / command[0]), *command[1:]])
    if done.returncode:
        raise UserError("the fine-tuning did not finish; what it said stands above")


# ------------------------------------------------------------------------------------- command line


def prompt(args: argparse.Namespace) -> None:
    path = snapshot_of(args.snapshot)
    payload = load_snapshot(path)
    config, domain = payload["config"], payload["domain"]
    name = config["domain"]["primal_task"]
    kind = kind_of(name)
    expression(args.text, kind)  # a mistake is told before anything is played
    policy = policy_from(payload)
    if policy.encoder is not None:
        raise UserError(f"{args.snapshot} sees pixels; a prompt is played on states: give another")
    if policy.skill_dim == 0:
        raise UserError(f"agent {payload['agent']} has no skills to choose from")
    seed = config["seed"] if args.seed is None else args.seed
    scored = score(policy, name, args.text, episodes=args.episodes, steps=args.steps, seed=seed)
    best = scored[0]
    print(f"{args.text}, on {payload['agent']} after {payload['frame']:,} frames of {domain}")
    print(ranking(scored))
    out = args.out or Path("runs/prompts") / task_name(domain, args.text)
    if not args.no_film:
        film_skills(
            argparse.Namespace(
                snapshot=path,
                out=out,
                steps=args.steps,
                seed=seed,
                size=args.size,
                only=[best.number],
                env=None,
                stills=False,
            )
        )
    if args.finetune is not None:
        task = write_task(out.absolute(), domain, name, args.text)
        fine_tune(
            finetune_command(str(args.snapshot), payload, best, task, args.finetune, out.absolute())
        )


def main() -> None:
    told = "; ".join(f"{kind}: {', '.join(names)}" for kind, names in QUANTITIES.items())
    parser = Parser(
        description=__doc__.partition("\n")[0],
        epilog=f"quantities: {told}, distance(x0, y0). Functions: abs, sqrt, exp, min, max, clip.",
    )
    parser.add_argument("snapshot", help="a snapshot_<frame>.pt, a run directory, or zoo:NAME")
    parser.add_argument("text", metavar="EXPRESSION", help='such as "speed - abs(height - 1)"')
    parser.add_argument(
        "--episodes", type=at_least(1), default=EPISODES, help="per skill (%(default)s)"
    )
    parser.add_argument(
        "--steps", type=at_least(1), default=STEPS, help="at most per episode (%(default)s)"
    )
    parser.add_argument("--seed", type=at_least(0, 2**32 - 1), help="of the starts (the run's own)")
    parser.add_argument(
        "--size", type=at_least(16, 4096), default=192, help="of the film (%(default)s)"
    )
    parser.add_argument("--no-film", action="store_true", help="only the ranking")
    parser.add_argument(
        "--finetune", type=at_least(0), metavar="N", help="frames, on the expression as a task"
    )
    parser.add_argument("--out", type=Path, help="directory (runs/prompts/NAME)")
    # An expression may begin with a minus; with a space before it, it is no option.
    words = [f" {word}" if re.match(r"-[^-h]", word) else word for word in sys.argv[1:]]
    args = parser.parse_intermixed_args(words)
    torch.set_num_threads(1)
    run_command(lambda: prompt(args), ValueError)


if __name__ == "__main__":
    main()
