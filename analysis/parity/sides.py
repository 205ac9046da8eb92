"""Both sides of a comparison: their agent, ours with its weights, and one batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from experiment.runs import compose
from replay_buffer import Batch
from run.build import make_learner, make_objective
from run.cli.schema import resolve
from utils import Streams, UserError

OBS, ACTIONS, SKILLS, HIDDEN, ROWS = 24, 6, 16, 16, 48  # walker's, and small networks
WORDS = ("agent=amped_release", f"learner.hidden_dim={HIDDEN}", f"learner.batch_size={ROWS}")


def public_agent(module: ModuleType, config: dict[str, Any]) -> Any:
    """Their agent, with the constants of our config."""
    learner, objective = config["learner"], config["agent"]["objective"]
    return module.AmpedAgent(
        name="amped",
        reward_free=True,
        obs_type="states",
        obs_shape=(OBS,),
        action_shape=(ACTIONS,),
        device=torch.device("cpu"),
        lr=learner["lr"],
        feature_dim=50,
        hidden_dim=HIDDEN,
        critic_target_tau=learner["critic_target_tau"],
        num_expl_steps=0,
        update_every_steps=1,
        stddev_schedule=learner["stddev"],
        nstep=config["replay"]["nstep"],
        batch_size=ROWS,
        stddev_clip=learner["stddev_clip"],
        init_critic=True,
        use_tb=False,
        use_wandb=False,
        update_skill_every_step=config["skill_interval"],
        skill_dim=SKILLS,
        update_encoder=False,
        contrastive_update_rate=objective["contrastive_updates"],
        temperature=objective["temperature"],
        alpha=config["alpha"],
        beta=config["beta"],
        skill=-1,
        project_skill=True,
        update_rep=True,
        becl_cic_ratio=config["p"],
    )


def copy_weights(ours: Iterable[nn.Parameter], theirs: Iterable[nn.Parameter], what: str) -> None:
    """Layer by layer; both sides list them in the order of their construction."""
    ours, theirs = list(ours), list(theirs)
    if [p.shape for p in ours] != [p.shape for p in theirs]:
        raise UserError(f"{what} of the checkout has other layers than the public code's")
    with torch.no_grad():
        for mine, other in zip(ours, theirs, strict=True):
            mine.copy_(other)


class Both:
    """Our objective and learner with the weights of their agent, and a batch for both."""

    def __init__(self, modules: dict[str, Any]):
        self.config = resolve(compose(list(WORDS)))
        self.module: Any = modules["agent.amped"]
        torch.manual_seed(0)
        self.public: Any = public_agent(self.module, self.config)
        self.module.rms = self.module.RMS()  # a global there
        env, rng = SimpleNamespace(obs_dim=OBS, action_dim=ACTIONS), Streams(0)
        self.objective: Any = make_objective(self.config, env, SKILLS, rng)  # type: ignore[arg-type]
        self.learner: Any = make_learner(
            self.config,
            env,  # type: ignore[arg-type]
            SKILLS,
            self.objective.streams,
            rng,
        )
        generator = rng.torch("parity")
        assert generator is not None, "only the meta device has none"
        self.batch = make_batch(generator)
        for what, ours, theirs in self.networks():
            copy_weights(ours, theirs, what)

    def networks(self) -> Iterator[tuple[str, list[nn.Parameter], list[nn.Parameter]]]:
        public, objective, learner = self.public, self.objective, self.learner
        becl, cic, rnd = public.becl, public.cic, public.rnd
        for what, ours, theirs in (
            ("actor", [learner.actor], [public.actor]),
            ("critic", [learner.critic], [public.critic]),
            ("critic_target", [learner.target], [public.critic_target]),
            ("becl", [objective.contrast.embed, objective.contrast.head], [becl]),
            ("cic.state_net", [objective.encoder.state], [cic.state_net]),
            ("cic.pred_net", [objective.encoder.predict], [cic.pred_net]),
            ("cic.skill_net", [objective.encoder.skill], [cic.skill_net]),
            ("rnd.predictor", [objective.rnd.predictor], [rnd.predictor]),
            ("rnd.target", [objective.rnd.target], [rnd.target]),
        ):
            yield what, *([p for m in each for p in m.parameters()] for each in (ours, theirs))  # type: ignore[misc]
        yield "Lambda", [objective.contrast.matrix], [public.Lambda]

    def fork(self) -> Both:
        """A copy of everything, so that a comparison that takes a step spoils no other."""
        other = copy.copy(self)
        other.public, other.objective, other.learner = copy.deepcopy(
            (self.public, self.objective, self.learner)
        )
        self.module.rms = self.module.RMS()
        return other

    def inputs(self, obs: Tensor) -> Tensor:
        return torch.cat([obs, self.batch.skill], 1)

    def give_noise(self, seed: int, draws: int) -> None:
        """Their next normal numbers, which torch's global generator will give, to our learner."""
        torch.manual_seed(seed)
        shape = (ROWS, ACTIONS)
        noise = [torch.normal(torch.zeros(shape), torch.ones(shape)) for _ in range(draws)]
        self.learner.learn_rng.given = noise
        torch.manual_seed(seed)


def make_batch(generator: torch.Generator) -> Batch:
    def normal(width: int) -> Tensor:
        return torch.randn(ROWS, width, generator=generator, dtype=torch.float64)

    index = torch.arange(ROWS) % SKILLS
    skill = F.one_hot(index[torch.randperm(ROWS, generator=generator)], SKILLS).double()
    discount = torch.full((ROWS, 1), 0.99**3, dtype=torch.float64)
    return Batch(
        normal(OBS), normal(ACTIONS).tanh(), normal(1), discount, normal(OBS), skill, normal(OBS)
    )
