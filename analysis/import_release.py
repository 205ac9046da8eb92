"""A snapshot of URLB-family code (URLB, CIC, BeCL, CeSD, AMPED's release) as one of ours:

    python -m analysis.import_release snapshot_2000000.pt domain=walker [agent=cic] [seed=1] [run_root=runs]

Those files pickle the whole agent. They are read without its code (analysis/stand_ins.py): actor,
critic, target and, of pixels, the encoder are kept, everything else is left out. agent= is needed
where the class in the file does not tell.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

from analysis.stand_ins import StandIn, read
from envs import DOMAINS
from experiment.runs import config_of
from run import build
from run.cli.console import Parser, printable
from run.cli.guard import run_command
from run.directory import RunDirectory
from run.paths import run_path
from run.seeing import seen_dim
from utils import CONFIGS, Streams, UserError, choose, save_snapshot, weights

OURS = tuple(sorted(path.stem for path in (CONFIGS / "agent").glob("*.yaml")))
KEYS = ("agent", "domain", "seed", "run_root", "skill_dim")
AGENTS = {"amped": "amped_release", "icm_apt": "apt"}  # where a module's name is not our agent's
NETWORKS = {
    "actor": ("actor", {"trunk": "trunk", "policy": "head"}),  # theirs -> ours
    "critic": ("critic", {"trunk": "trunk", "Q1": "q1", "Q2": "q2"}),
    "critic_target": ("target", {"trunk": "trunk", "Q1": "q1", "Q2": "q2"}),
}
ENCODER, CONVNET = "encoder", "convnet"  # of agents that see pixels; ours: encoder.convolutions
STRIDES = ((2, 2), (1, 1), (1, 1), (1, 1))
LINEAR = ("Linear", "VectorizedLinear")  # the second: CeSD's critics side by side
EPS = 1e-5  # LayerNorm's, here and there


# ----------------------------------------------------------------------------------------- networks


def layers_of(agent: StandIn, network: str, part: str) -> dict[str, StandIn]:
    """The layers of a Sequential in the file by their numbers. They are checked to compute what our
    networks compute."""
    name, owner = f"{network}.{part}", agent.get(network)
    sequence = owner.parts("_modules").get(part) if isinstance(owner, StandIn) else None
    layers = (
        sequence.parts("_modules")
        if isinstance(sequence, StandIn) and sequence.kind == "Sequential"
        else {}
    )
    if not layers or not all(isinstance(layer, StandIn) for layer in layers.values()):
        raise UserError(f"it has no {name}, a Sequential of layers")
    kinds = [layer.kind for layer in layers.values()]
    if part == CONVNET:
        words = "four times Conv2d (3 x 3, the first with stride 2), ReLU"
        strides = tuple(layer.get("stride") for layer in list(layers.values())[::2])
        fits = kinds == ["Conv2d", "ReLU"] * 4 and strides == STRIDES
    elif part == "trunk":
        words = f"Linear, LayerNorm (eps {EPS:g}), Tanh"
        eps = list(layers.values())[1].get("eps") if len(layers) > 1 else None
        fits = kinds == ["Linear", "LayerNorm", "Tanh"] and type(eps) is float and eps == EPS
    else:
        words = "Linear layers with ReLU between them"
        fits = len(kinds) % 2 and all(
            kind in (LINEAR, ("ReLU",))[i % 2] for i, kind in enumerate(kinds)
        )
    if not fits or list(layers) != [str(number) for number in range(len(layers))]:
        raise UserError(f"{name} is {', '.join(kinds)}; ours is {words}")
    return layers


def parameters_of(layer: StandIn, name: str) -> dict[str, torch.Tensor]:
    found = layer.parts("_parameters")
    for key, value in found.items():
        if not (
            isinstance(key, str)
            and isinstance(value, torch.Tensor)
            and value.dtype == torch.float32
            and value.layout == torch.strided
            and value.device.type == "cpu"
            and torch.isfinite(value).all()
        ):
            raise UserError(f"{name}.{key} is not a dense tensor of finite float32 numbers")
    return {f"{name}.{key}": value.detach().clone() for key, value in found.items()}


def networks_of(agent: StandIn) -> dict[str, torch.Tensor]:
    """Encoder, actor, critic and target under our names; the numbers of layers are the same."""
    found: dict[str, torch.Tensor] = {}
    if sees(agent):
        for number, layer in layers_of(agent, ENCODER, CONVNET).items():
            found |= parameters_of(layer, f"encoder.convolutions.{number}")
    for network, (ours, parts) in NETWORKS.items():
        for part, name in parts.items():
            for number, layer in layers_of(agent, network, part).items():
                found |= parameters_of(layer, f"{ours}.{name}.{number}")
    return found


def require_fit(theirs: dict[str, torch.Tensor], ours: dict[str, torch.Tensor], agent: str) -> None:
    for name in sorted(theirs.keys() | ours.keys()):
        here, there = (
            list(each[name].shape) if name in each else "absent" for each in (ours, theirs)
        )
        if here != there:
            raise UserError(f"{name} is {there} there; agent={agent} has {here}")


# ----------------------------------------------------------------------------------------- snapshot


def agent_in(payload: Any) -> StandIn:
    agent, step = (
        payload.get(key) if isinstance(payload, dict) else None for key in ("agent", "_global_step")
    )
    if not isinstance(agent, StandIn) or type(step) is not int or not 0 <= step <= 10**15:
        raise UserError(
            "it holds no agent and _global_step, which pretrain.py of URLB-family code saves"
        )
    return agent


def sees(agent: StandIn) -> bool:
    """Whether it was trained on pixels."""
    encoder = agent.get(ENCODER)
    return agent.get("obs_type") == "pixels" or (
        isinstance(encoder, StandIn) and encoder.kind != "Identity"
    )


def name_of(agent: StandIn) -> str:
    """agent.cic.CICAgent -> cic."""
    module = agent.source.split(".")[-2]
    name = AGENTS.get(module, module)
    if name not in OURS:
        raise UserError(f"its class {agent.source} is none of our agents; say which by agent=NAME")
    return name


def config_for(given: dict[str, str], sizes: dict[str, Any]) -> dict[str, Any]:
    """What pretrain.py would have at the paper's size, with the networks that are in the file."""
    words = {
        "preset": "paper",
        "variant": "imported",
        **given,
        **{key: str(value) for key, value in sizes.items()},
    }
    config, _ = config_of("pretrain", words)
    if config["agent"]["objective"] is None:
        raise UserError(
            f"agent={given['agent']} starts every task from scratch: nothing would use the snapshot"
        )
    return config


def sizes_of(found: dict[str, torch.Tensor]) -> tuple[int, dict[str, Any]]:
    """The number of the actor's inputs, and the keys by which a config names these networks."""
    first = found.get("actor.trunk.0.weight")
    if first is None or first.ndim != 2:
        raise UserError("actor.trunk.0 has no matrix of weights")
    heads = [name for name in found if name.startswith("actor.head.") and name.endswith(".weight")]
    layers = {"learner.layers": len(heads) - 1}
    filters = found.get("encoder.convolutions.0.weight")
    if filters is None:
        width = {"learner.hidden_dim": first.shape[0], "learner.action_input": "trunk"}
        return first.shape[1], width | layers
    if filters.ndim != 4 or filters.shape[1] % 3:
        raise UserError(f"{ENCODER}.{CONVNET}.0 takes no stack of coloured frames")
    return first.shape[1], layers | {
        "obs_type": "pixels",
        "render.stack": filters.shape[1] // 3,
        "pixels.channels": filters.shape[0],
        "pixels.feature_dim": first.shape[0],
        "learner.hidden_dim": found["actor.head.0.weight"].shape[0],
    }


def skills_of(config: dict[str, Any], given: dict[str, str], inputs: int, obs_dim: int) -> int:
    """The size of a skill: what the actor takes besides observations."""
    found = inputs - obs_dim
    some = config["agent"]["skill_space"] != "none"
    if (found > 0) != some or found < 0 or given.get("skill_dim", str(found)) != str(found):
        expected = given.get("skill_dim", "any number" if some else "0")
        raise UserError(
            f"its actor takes {inputs} numbers, of which {given['domain']} observes {obs_dim}; "
            f"agent={given['agent']} with skill_dim={expected} does not fit"
        )
    return found


def convert(path: Path, given: dict[str, str]) -> tuple[dict[str, Any], StandIn]:
    """The payload of our snapshot, and the agent it was taken from."""
    payload = read(path)
    agent = agent_in(payload)
    given = given if "agent" in given else {**given, "agent": name_of(agent)}
    found = networks_of(agent)
    inputs, sizes = sizes_of(found)
    config = config_for(given, sizes)
    env = build.make_env(config["domain"]["primal_task"], 0, config)
    skill_dim = skills_of(config, given, inputs, seen_dim(config, env.obs_dim))
    config = config_for({**given, "skill_dim": str(skill_dim)}, sizes)
    rng = Streams(config["seed"])
    objective = build.make_objective(config, env, skill_dim, rng)
    ours = weights(build.make_learner(config, env, skill_dim, objective.streams, rng))
    require_fit(found, ours, given["agent"])
    spec = {"obs_dim": env.obs_dim, "action_dim": env.action_dim, "skill_dim": skill_dim}
    return {
        "frame": payload["_global_step"],
        "seed": config["seed"],
        "agent": given["agent"],
        "domain": given["domain"],
        "spec": spec,
        "config": config,
        "imported": agent.source,
        "objective": {},
        "skills": {},
        "learner": {name: found[name] for name in ours},
    }, agent


def left_out(agent: StandIn) -> list[str]:
    """Networks and optimisers that stay behind."""
    state = agent.state if isinstance(agent.state, dict) else {}
    return sorted(
        str(name)
        for name, value in state.items()
        if name not in (*NETWORKS, ENCODER)
        and (
            isinstance(value, torch.Tensor)
            or (
                isinstance(value, StandIn)
                and value.kind != "Identity"
                and value.source.startswith(("torch.", "agent.", "utils."))
            )
        )
    )


# ------------------------------------------------------------------------------------- command line


def import_release(path: Path, words: list[str], out: Path | None) -> Path:
    given = dict(word.partition("=")[::2] for word in words)
    if unknown := [key for key in given if key not in KEYS]:
        raise UserError(
            f"{unknown[0]} is not a key of this command; give {', '.join(f'{key}=' for key in KEYS)}"
        )
    if wrong := [key for key in ("seed", "skill_dim") if not given.get(key, "0").isdecimal()]:
        raise UserError(f"{wrong[0]}={given[wrong[0]]} is not a whole number")
    if "domain" not in given:
        raise UserError(
            f"domain= is missing, which the file does not tell; choose from {', '.join(DOMAINS)}"
        )
    for key, choices in (("domain", tuple(DOMAINS)), ("agent", OURS)):
        if key in given:
            choose(key, given[key], choices)
    try:
        payload, agent = convert(path, given)
    except UserError as error:
        raise error if str(path) in str(error) else UserError(f"{path}: {error}") from error
    config = payload["config"]
    out = out or RunDirectory(run_path(config, []), config).snapshot_path(payload["frame"])
    if out.exists():
        raise UserError(f"{out} is there already; remove it, or give --out FILE")
    save_snapshot(out, **payload)
    spec = payload["spec"]
    print(
        f"{printable(payload['imported'])} at frame {payload['frame']:,}: obs {spec['obs_dim']}, "
        f"action {spec['action_dim']}, skills {spec['skill_dim']}, hidden {config['learner']['hidden_dim']}\n"
        f"left out: {printable(', '.join(left_out(agent))) or 'nothing'}\n"
        f"snapshot: {printable(out)}\n"
        f"fine-tune: python finetune.py agent={payload['agent']} task=... snapshot={printable(out)} "
        f"seed={payload['seed']}{' obs_type=pixels' if config['obs_type'] == 'pixels' else ''}"
    )
    return out


def main() -> None:
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "path", type=Path, metavar="PATH", help="snapshot_<frame>.pt of URLB-family code"
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help=f"of {', '.join(KEYS)}")
    parser.add_argument(
        "--out",
        type=Path,
        help="the snapshot to write "
        "(<run_root>/pretrain/<domain>/<agent>/imported/seed_<n>/snapshots/snapshot_<frame>.pt)",
    )
    args = parser.parse_intermixed_args()
    run_command(lambda: import_release(args.path, args.words, args.out))


if __name__ == "__main__":
    main()
