"""The one loop: env, skill source, learner, objective and memory meet here and nowhere else."""

from __future__ import annotations

import contextlib
import math
import signal
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import dm_env
import numpy as np
import torch
from tqdm import tqdm

from agent import video
from agent.base import Learner, Objective
from agent.logger import Logger, NotFinite
from agent.results import summary
from agent.rundir import RunDirectory
from agent.skills import SkillSource
from envs import Env, NotRestorable
from replay_buffer import ReplayBuffer
from utils import Streams, UserError, save_snapshot, stream_seed, weights, write_atomic

TRAINING_EPISODES = 10  # whose choices are kept at the end
EVAL_SKILLS = 16  # skills drawn for the log of a pre-training whose skills cannot be counted
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last is what Slurm's --signal sends before the time is up


@dataclass
class Parts:
    """The five nouns, and the random streams they draw from."""

    env: Env
    eval_envs: list[Env]  # of evaluations, whose episodes run side by side
    skills: SkillSource
    learner: Learner
    objective: Objective
    memory: ReplayBuffer
    rng: Streams


class Episode(NamedTuple):
    """What an evaluation keeps of an episode of T steps."""

    total: float  # return
    states: np.ndarray  # (T, obs_dim), after each step
    skills: np.ndarray  # (T, skill_dim)


class Lane:
    """An episode of an evaluation while it is played."""

    def __init__(self, env: Env, source: SkillSource, seed: int):
        env.seed(seed)
        self.env, self.source, self.film, self.last = env, source, None, env.reset()
        self.total, self.states, self.skills = 0.0, [], []

    def choose(self) -> np.ndarray:
        step = len(self.states)
        return self.source.select(self.last.observation, step, first=step == 0)

    def step(self, action: np.ndarray, skill: np.ndarray) -> None:
        self.last = self.env.step(action)
        self.total += self.last.reward
        self.states.append(self.last.observation)
        self.skills.append(skill)
        if self.film:
            self.film.add(self.env, skill, self.last.reward)


class Interrupted(Exception):
    """One of STOPS arrived; the run is saved and can be continued."""

    def __init__(self, signum: int, saved: str):
        super().__init__(f"{signal.Signals(signum).name}: {saved}; the same command continues there")
        self.exit_code = 128 + signum


class Runner:
    """Trains, evaluates, snapshots and checkpoints; everything that must survive a crash is in `state_dict`."""

    def __init__(self, config: dict[str, Any], directory: RunDirectory, parts: Parts, logger: Logger, info: dict):
        self.config, self.directory, self.parts, self.logger, self.info = config, directory, parts, logger, info
        self.repeat = config["action_repeat"]
        self.last_frame = config["num_train_frames"]
        self.step = 0  # agent steps; frame = step * action_repeat
        self.time_step: dm_env.TimeStep | None = None
        self.episode_return, self.episodes = 0.0, 0
        self.wall_seconds = 0.0
        self.signum: int | None = None
        self.last_eval: dict[str, Any] = {}
        self.evaluated: list[Episode] = []  # of the last evaluation

    @property
    def frame(self) -> int:
        return self.step * self.repeat

    @property
    def kept(self) -> tuple[str, ...]:
        """Parts whose state a checkpoint holds."""
        return ("skills", "learner", "objective", "memory", "rng")

    # ------------------------------------------------------------------------------------------------ loop

    def train(self) -> dict[str, Any]:
        """Run to the last frame; returns what goes into result.json."""
        if (checkpoint := self.directory.load_checkpoint()) is not None:
            self.load_state_dict(checkpoint)
            print(f"continuing at frame {self.frame:,}", flush=True)
        handlers = {s: signal.signal(s, self._on_signal) for s in STOPS}
        self.started, self.resumed_at = time.monotonic() - self.wall_seconds, self.step
        try:
            with tqdm(total=self.last_frame, initial=self.frame, unit="frame", disable=None, smoothing=0.02,
                      desc=self.config["phase"], dynamic_ncols=True) as self.bar:
                self.bar._time = time.monotonic  # tqdm's own may jump
                self.bar.unpause()
                while not self._at_border():
                    before = self.frame
                    self._advance()
                    self.bar.update(self.frame - before)
        except NotFinite as error:
            raise UserError(f"{error}; stopped, {self.directory.newest()}") from error
        finally:
            for signum, handler in handlers.items():
                signal.signal(signum, handler)
        self._keep_choices()
        return self._result()

    def _on_signal(self, signum: int, _) -> None:
        self.signum = signum

    def _at_border(self) -> bool:
        """What happens between two steps: log, checkpoint, evaluate, snapshot. True when the run is complete."""
        config, frame = self.config, self.frame
        done = frame >= self.last_frame
        if self.signum:
            self._stop()
        if frame and (frame % config["log_every_frames"] == 0 or done) and self.logger.counts:
            self._log()
        if frame % config["checkpoint_every_frames"] == 0 and self.step > self.resumed_at:
            self.save_checkpoint()  # before the evaluation, so that a kill during it repeats nothing but it
        if frame % config["eval_every_frames"] == 0 or done:
            self._evaluate()
        if frame in config["snapshots"] or done:
            self.save_snapshot()
        return done

    def _advance(self) -> None:
        """One environment step (architecture: rows 1 to 9)."""
        p = self.parts
        if self.time_step is None or self.time_step.last():
            self.time_step = p.env.reset()
            self._check_finite(observation=self.time_step.observation)
            p.memory.begin(self.time_step.observation)
        obs = self.time_step.observation
        skill = p.skills.select(obs, self.step, first=self.time_step.first())
        action = self._act(obs, skill, explore=True)
        if p.learner.due(p.memory, self.step):
            self.logger.add(p.learner.learn(p.memory, p.objective, self.step))
        self.logger.add(p.skills.update(p.memory, self.step))
        following = p.env.step(action)
        self._check_finite(observation=following.observation, reward=following.reward, discount=following.discount)
        p.memory.add(action, skill, following.reward, following.discount, following.observation)
        p.objective.observe(obs, following.observation)
        self.time_step = following
        self.step += 1
        self.episode_return += following.reward
        if following.last():
            self.logger.add({"episode/return": torch.tensor(self.episode_return)})
            self.episode_return, self.episodes = 0.0, self.episodes + 1

    def _act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool) -> np.ndarray:
        action = self.parts.learner.act(obs, skill, self.step, explore=explore)
        if not np.isfinite(action).all():
            self._require_finite()  # names the quantity that went first, if it is in the open window
            raise NotFinite(f"the action is not finite at frame {self.frame}")
        return action

    def _check_finite(self, **given: Any) -> None:
        """What the environment gave, by name."""
        for name, value in given.items():
            if not np.isfinite(value).all():
                raise NotFinite(f"the environment gave a non-finite {name} at frame {self.frame}")

    # ------------------------------------------------------------------------------------------ evaluation

    def _evaluate(self) -> None:
        row = self.evaluate_skills() if self.config["phase"] == "pretrain" else self.evaluate_task()
        self.last_eval = row
        self.logger.add_eval(self.frame, row)
        tqdm.write(f"frame {self.frame:>10,}  {self.describe(row)}")

    def describe(self, row: dict[str, Any]) -> str:
        """An evaluation in a line, for the screen."""
        self.bar.set_postfix_str(f"eval {row['return_mean']:.1f}")
        return (f"return {row['return_mean']:8.2f} +- {row['return_std']:.2f}"
                + (f"  skill variance {row['skill_variance']:.3f}" if "skill_variance" in row else ""))

    def evaluate_task(self) -> dict[str, Any]:
        """The mean action on fresh starts; seeds depend on the run's seed, the frame and the number of the episode, so
        methods share them."""
        seed, episodes = self.config["seed"], range(self.config["num_eval_episodes"])
        own = self.parts.skills.rule != "per_call"  # otherwise all episodes share one draw
        sources = [self.parts.skills.evaluation(np.random.default_rng(
            stream_seed(seed, "eval skills", self.frame, *[i] * own))) for i in episodes]
        self._play(sources, [stream_seed(seed, "eval", self.frame, i) for i in episodes])
        return self._row(self.parts.skills.rule)

    def evaluate_skills(self) -> dict[str, Any]:
        """Each skill (or some draws) from one and the same start, for the log only: differences are the skill's."""
        seed, space = self.config["seed"], self.parts.skills.space
        rng = np.random.default_rng(stream_seed(seed, "eval skills"))  # the same draws at every evaluation
        sources = [SkillSource(space, skill) for skill in space.panel(rng, EVAL_SKILLS)]
        self._play(sources, [stream_seed(seed, "eval", self.frame)] * len(sources))
        return {**self._row("each_skill"), "skill_variance": explained_variance([e.states for e in self.evaluated])}

    def _row(self, rule: str) -> dict[str, Any]:
        returns = [episode.total for episode in self.evaluated]
        return {"return_mean": float(np.mean(returns)), "return_std": float(np.std(returns)),
                "skills": rule, "episodes": len(returns), "returns": " ".join(f"{r:.6g}" for r in returns)}

    def _play(self, sources: list[SkillSource], seeds: list[int]) -> None:
        """One deterministic episode for each, as many side by side as there are environments: `evaluated`."""
        self.evaluated, count = [], len(self.parts.eval_envs)
        for first in range(0, len(seeds), count):
            self.evaluated += self._side_by_side(sources[first : first + count], seeds[first : first + count])

    def _side_by_side(self, sources: list[SkillSource], seeds: list[int]) -> list[Episode]:
        limit = self.config["eval_episode_steps"] or math.inf
        with contextlib.ExitStack() as films:
            lanes = [Lane(env, source, seed) for env, source, seed in zip(self.parts.eval_envs, sources, seeds)]
            for number, lane in enumerate(lanes, len(self.evaluated)):
                if self.config["save_video"] and number < self.config["video_episodes"]:
                    lane.film = films.enter_context(self._recorder(lane.env, number))
            while going := [lane for lane in lanes if not lane.last.last() and len(lane.states) < limit]:
                if self.signum:  # the evaluation is repeated after the resume: nothing of it is kept
                    self._stop()
                obs = np.stack([lane.last.observation for lane in going])
                skills = np.stack([lane.choose() for lane in going])
                for lane, action, skill in zip(going, self._act(obs, skills, explore=False), skills, strict=True):
                    lane.step(action, skill)
                    self._check_finite(observation=lane.last.observation, reward=lane.last.reward)
        return [Episode(lane.total, np.array(lane.states), np.array(lane.skills)) for lane in lanes]

    def _recorder(self, env: Env, number: int) -> video.Recorder:
        every, fps = video.pace(env, self.repeat)
        path = self.directory.path / "videos" / f"eval_{self.frame}_{number}.mp4"
        return video.Recorder(path, size=self.config["video_size"], fps=fps, every=every)

    # --------------------------------------------------------------------------------------------- records

    def _log(self) -> None:
        elapsed = time.monotonic() - self.started
        fps = (self.step - self.resumed_at) * self.repeat / max(elapsed - self.wall_seconds, 1e-9)
        self.logger.close_window(self.frame, {"episodes": self.episodes, "seconds": elapsed, "fps": fps})

    def _require_finite(self) -> None:
        """Before anything is saved: whatever was learned since the last save, and the weights."""
        p = self.parts
        self.logger.means(self.frame)
        for owner, module in (("learner", p.learner), ("objective", p.objective), ("selector", p.skills.network)):
            if module is None:
                continue
            for name, tensor in weights(module).items():
                if not torch.isfinite(tensor).all():
                    raise NotFinite(f"{owner} weight {name} is not finite at frame {self.frame}")
            for name, optimizer in module.optimizers.items():
                if not all(torch.isfinite(t).all() for s in optimizer.state.values() for t in s.values()):
                    raise NotFinite(f"{owner} optimiser {name} is not finite at frame {self.frame}")

    def save_snapshot(self) -> None:
        self._require_finite()
        p = self.parts
        spec = {"obs_dim": p.env.obs_dim, "action_dim": p.env.action_dim, "skill_dim": p.skills.space.dim}
        save_snapshot(self.directory.snapshot_path(self.frame), frame=self.frame, seed=self.config["seed"],
                      agent=self.config["agent"]["name"], domain=self.config["domain"]["name"], spec=spec,
                      config=self.config, learner=weights(p.learner), objective=weights(p.objective),
                      skills=weights(p.skills.network) if p.skills.network else {})

    def save_checkpoint(self) -> None:
        self._require_finite()
        self.directory.save_checkpoint(self.frame, self.state_dict())

    def _stop(self) -> None:
        if self.step > self.resumed_at:
            self.save_checkpoint()
        raise Interrupted(self.signum, f"saved at frame {self.frame}")

    def state_dict(self) -> dict[str, Any]:
        p = self.parts
        state = {name: getattr(p, name).state_dict() for name in self.kept}
        return {**state, "env": self._env_state(), "logger": self.logger.state_dict(), "step": self.step,
                "episode_return": self.episode_return, "episodes": self.episodes,
                "wall_seconds": time.monotonic() - self.started}

    def _env_state(self) -> dict[str, Any] | None:
        try:
            return self.parts.env.get_state()
        except NotRestorable:  # a foreign environment: everything else is still saved
            return None

    def load_state_dict(self, state: dict[str, Any]) -> None:
        p = self.parts
        for name in self.kept:
            getattr(p, name).load_state_dict(state[name])
        self.logger.load_state_dict(state["logger"])
        for name in ("step", "episode_return", "episodes", "wall_seconds"):
            setattr(self, name, state[name])
        self._restore_env(state["env"])

    def _restore_env(self, state: dict[str, Any] | None) -> None:
        if state is None:
            print("this environment cannot be restored: the run continues with a new episode, not bit for bit")
            self.time_step, self.episode_return = None, 0.0
            return
        try:
            self.time_step = self.parts.env.set_state(state)
        except NotRestorable as error:
            raise UserError(f"cannot continue {self.directory.path}: {error}") from error

    def _keep_choices(self) -> None:
        """What a selector chose at the end: choices.npz, one row per episode, -1 past its end."""
        if self.parts.skills.network is None:
            return
        played = {"training": self.parts.memory.recent_skills(TRAINING_EPISODES),
                  "evaluation": [episode.skills.argmax(1) for episode in self.evaluated]}
        arrays = {name: np.full((len(episodes), max(map(len, episodes), default=0)), -1, np.int16)
                  for name, episodes in played.items()}
        for name, episodes in played.items():
            for row, episode in zip(arrays[name], episodes, strict=True):
                row[: len(episode)] = episode
        write_atomic(self.directory.path / "choices.npz", lambda file: np.savez_compressed(file, **arrays))

    def _result(self) -> dict[str, Any]:
        curve = [{"frame": int(row["frame"]), **{k: float(row[k]) for k in ("return_mean", "return_std")}}
                 for row in self.logger.eval.rows]
        return summary(self.config, variant=self.directory.variant, frame=self.frame, final=self.last_eval, curve=curve,
                       wall_seconds=time.monotonic() - self.started, **self.info,
                       snapshot=self.directory.snapshot_path(self.frame).name)


def explained_variance(groups: list[np.ndarray]) -> float:
    """Share of state variance between groups (skills), averaged over the dimensions that vary: 0 none, 1 all."""
    pooled = np.concatenate(groups).astype(np.float64)
    total = ((pooled - pooled.mean(0)) ** 2).sum(0)
    between = sum(len(g) * (g.astype(np.float64).mean(0) - pooled.mean(0)) ** 2 for g in groups)
    varies = total > 1e-12 * len(pooled)
    return float((between[varies] / total[varies]).mean()) if varies.any() else 0.0
