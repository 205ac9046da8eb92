"""The trained policy inside a run or a snapshot: load_policy(PATH).act(obs, skill)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from agent import zoo
from agent.keys import arguments, keys_of
from agent.learners.adaptation import under
from agent.learners.policies import POLICIES
from agent.parts.draws import Draws
from agent.parts.networks import Actor
from agent.parts.pixels import Encoder, Images
from agent.skills.regimes import make_skills
from agent.skills.selector import Greedy
from agent.skills.selector_networks import ALGORITHMS
from agent.skills.sources import SkillSource, SkillSpace
from agent.skills.trials import Best
from utils import Streams, UserError, fitting, load_snapshot, load_weights

Skills = int | np.ndarray | list | None


class Policy:
    """A trained actor. `act(obs, skill)` gives the deterministic action; a policy that was
    fine-tuned with a rule that chooses its skills (`chooses`) acts by itself: `act(obs)`.

    Such a rule may keep a skill for some steps, so tell it by `reset()` when an episode begins.
    """

    def __init__(
        self,
        actor: torch.nn.Module,
        spec: Mapping[str, int],
        frame: int,
        *,
        space: SkillSpace,
        source: SkillSource | None = None,
        config: dict[str, Any] | None = None,
        encoder: Encoder | None = None,
    ):
        self.encoder = encoder  # of a policy that sees pixels
        self.actor, self.frame, self.space, self.source = actor.eval(), frame, space, source
        self.config = config or {}  # of the run that trained it
        self.obs_dim, self.action_dim, self.skill_dim = (
            spec[k] for k in ("obs_dim", "action_dim", "skill_dim")
        )
        # of an observation
        self.obs_shape = (self.obs_dim,) if encoder is None else encoder.images.shape
        self.steps = 0  # of the episode, for a rule that chooses

    @property
    def one_hot(self) -> bool:
        return self.space.one_hot

    @property
    def chooses(self) -> bool:
        """Whether it acts without being told a skill."""
        return self.skill_dim == 0 or self.source is not None

    def reset(self) -> None:
        """An episode, or a batch of them side by side, begins."""
        self.steps = 0

    @torch.no_grad()
    def act(self, obs: np.ndarray, skill: Skills = None) -> np.ndarray:
        """Actions in [-1, 1] for observations (obs_dim,) or (N, obs_dim); of pixels (channels, rows,
        columns) or N of them, from 0 to 255.

        A skill is an index or a vector of skill_dim; for N observations also N indices (whole
        numbers) or vectors (N, skill_dim). None: for agents without skills, and for policies that
        choose.
        """
        x = torch.as_tensor(np.asarray(obs, np.float32))
        own = len(self.obs_shape)
        if x.ndim not in (own, own + 1) or x.shape[-own:] != self.obs_shape:
            wanted = ", ".join(map(str, self.obs_shape))
            raise ValueError(f"obs has shape {tuple(x.shape)}; expected (..., {wanted})")
        if self.encoder is not None:
            x = self.encoder.see(x)
        if self.skill_dim:
            chosen = self._choose(x.numpy()) if skill is None and self.source else skill
            x = torch.cat([x, torch.as_tensor(self._vectors(chosen, x.shape[:-1]))], -1)
        self.steps += 1
        return self.actor(x).numpy()

    def _choose(self, obs: np.ndarray) -> np.ndarray:
        assert self.source is not None, "the caller has looked"
        many = self.source.select_many(np.atleast_2d(obs), self.steps, first=self.steps == 0)
        if len(many) != len(np.atleast_2d(obs)):
            raise ValueError(
                f"{len(np.atleast_2d(obs))} observations after {len(many)} in the same episodes; "
                "call reset() when episodes begin"
            )
        return many if obs.ndim == 2 else many[0]

    def _vectors(self, skill: Any, lanes: torch.Size) -> np.ndarray:
        """A skill or a batch of them as vectors (*lanes, skill_dim)."""
        given = None if skill is None else np.asarray(skill)
        whole = given is not None and np.issubdtype(given.dtype, np.integer)
        indices = whole and given is not None and (given.ndim == 0 or given.shape == tuple(lanes))
        if given is None or (indices and not self._counted(given)) or not (indices or given.ndim):
            counted = f"an index below {self.skill_dim} or " if self.one_hot else ""
            raise ValueError(
                f"this policy needs a skill: {counted}a vector of {self.skill_dim}; got {skill}"
            )
        vectors = np.eye(self.skill_dim)[given] if indices else given
        wanted = (*lanes, self.skill_dim)
        if vectors.shape not in ((self.skill_dim,), wanted):
            raise ValueError(
                f"skills of shape {given.shape} do not fit observations {(*lanes, self.obs_dim)}; give "
                f"one of shape ({self.skill_dim},)" + (f" or {wanted}" if lanes else "")
            )
        return np.broadcast_to(vectors.astype(np.float32), wanted).copy()

    def _counted(self, indices: np.ndarray) -> bool:
        return self.one_hot and bool(((indices >= 0) & (indices < self.skill_dim)).all())


def snapshot_of(path: str | Path) -> Path:
    """The snapshot that a path stands for: `zoo:NAME`, a file, or the last one of a run."""
    path = zoo.resolve(path)
    if not path.is_dir():
        return path
    frames = {
        int(found[1]): each
        for each in path.glob("snapshots/*.pt")
        if (found := re.fullmatch(r"snapshot_(\d+)", each.stem))
    }
    if not frames:
        raise UserError(
            f"{path} holds no snapshots/snapshot_<frame>.pt; give a run directory (.../seed_1), a "
            "snapshot, or zoo:NAME"
        )
    return frames[max(frames)]


def load_policy(path: str | Path) -> Policy:
    """The policy of a run directory (its last snapshot), of a snapshot, or of `zoo:NAME`; on the
    CPU, without building an environment or a run."""
    path = snapshot_of(path)
    return policy_from(load_snapshot(path), path)


def policy_from(payload: dict[str, Any], path: object = "the snapshot") -> Policy:
    """`path`: what a mistake is called by."""
    spec, config = payload["spec"], payload["config"]
    learner = config["learner"]
    sizes = {"hidden_dim": learner["hidden_dim"], "layers": learner["layers"]}
    kind: Callable[..., torch.nn.Module] = Actor
    prefix = actor_prefix(config)
    if learner["name"] == "ppo":
        kind = POLICIES[learner["policy"]]
        sizes["normalize"] = learner["normalize_inputs"]
    seen, encoder = spec["obs_dim"], None
    if config.get("obs_type") == "pixels":
        encoder = encoder_of(config, spec)
        sizes["trunk_dim"], seen = config["pixels"]["feature_dim"], encoder.images.features
    actor = kind(seen + spec["skill_dim"], spec["action_dim"], **sizes)
    state = payload["learner"]
    with fitting(path):
        actor.load_state_dict(under(state, prefix))
        if encoder is not None:
            encoder.load_state_dict(under(state, "encoder."))
    space = SkillSpace(config["agent"]["skill_space"], spec["skill_dim"])
    return Policy(
        actor,
        spec,
        payload["frame"],
        space=space,
        source=source_of(payload, space, seen),
        config=config,
        encoder=encoder,
    )


def encoder_of(config: dict[str, Any], spec: Mapping[str, int]) -> Encoder:
    """The encoder of a snapshot, without its weights."""
    size = config["render"]["size"]
    return Encoder(Images((spec["obs_dim"] // size**2, size, size), config["pixels"]["channels"]))


def actor_prefix(config: dict[str, Any]) -> str:
    """Of the weights that act, among a learner's."""
    return "policy." if config["learner"]["name"] == "ppo" else "actor."


def source_of(payload: dict[str, Any], space: SkillSpace, seen: int) -> SkillSource | None:
    """Who chose the skill in the evaluations of a fine-tuning, if that needs nobody to draw one: a
    selector, which gets `seen` numbers of an observation, or one fixed skill."""
    config = payload["config"]
    if config["phase"] != "finetune" or space.dim == 0:
        return None
    skills, settled = config["skills"], payload.get("settled")
    if settled is not None:  # the skill that was found by trying, or by data
        if np.shape(settled) != (space.dim,):
            raise UserError(f"the snapshot's skill has not the size {space.dim}")
        return Best(space, np.array(settled, np.float32))
    if skills["name"] == "fixed":  # drawn, where its index is -1, as the run has drawn it
        return make_skills(config, space, Streams(config["seed"]).numpy("skills"))
    if skills["name"] not in ALGORITHMS or not payload.get("skills"):
        return None
    kind = ALGORITHMS[skills["name"]]
    own = {key: value for key, value in skills.items() if key in keys_of(kind)}
    network = kind(
        obs_dim=seen,
        skill_dim=space.dim,
        generator=Draws(None, torch.device("cpu")),
        **arguments(kind, own),
    )
    load_weights(network, payload["skills"])
    return Greedy(space, network.eval(), torch.device("cpu"), skills["interval"])
