"""The one loop: env, skill source, learner, objective and memory meet here and nowhere else."""

from __future__ import annotations

import time
from typing import Any

import dm_env
import numpy as np
import torch
from tqdm import tqdm

from envs import NotRestorable
from run import data
from run.directory import RunDirectory
from run.evaluation import Evaluator
from run.logger import Logger
from run.longer import revived
from run.parts import Parts, require_finite
from run.results import summary
from run.signals import BrokenOff, stops_go_to
from utils import (
    Interrupted,
    NotFinite,
    UserError,
    load_weights,
    save_snapshot,
    stream_seed,
    weights,
    write_atomic,
)

TRAINING_EPISODES = 10  # whose choices are kept at the end


class Runner:
    """Trains, evaluates, snapshots and checkpoints; everything that must survive a crash is in
    `state_dict`.

    Metrics:
        episode/return: Task reward of training episodes, never learned from in pre-training.
    """

    evaluator_class: type[Evaluator] = Evaluator

    def __init__(
        self,
        config: dict[str, Any],
        directory: RunDirectory,
        parts: Parts,
        logger: Logger,
        info: dict,
    ):
        self.config, self.directory, self.parts = config, directory, parts
        self.logger, self.info = logger, info
        self.repeat = config["action_repeat"]
        self.last_frame = config["num_train_frames"]
        self.step = 0  # agent steps; frame = step * action_repeat
        self.time_step: dm_env.TimeStep | None = None
        self.episode_return, self.episodes = 0.0, 0
        self.wall_seconds = 0.0
        self.signum: int | None = None
        self.last_eval: dict[str, Any] = {}
        self.keeps_physics = config.get("save_replay") == "physics"
        self.offline_updates = config["data"]["offline_updates"] if "data" in config else 0
        self.offline = 0  # updates on older data that were made before the first frame
        self.evaluator = self.evaluator_class(
            config,
            directory,
            parts,
            pause=self._pause,
            act=lambda obs, skills: self._act(obs, skills, explore=False),
        )

    @property
    def frame(self) -> int:
        return self.step * self.repeat

    @property
    def kept(self) -> tuple[str, ...]:
        """The parts whose state a checkpoint holds."""
        return ("skills", "learner", "objective", "memory", "rng")

    # ----------------------------------------------------------------------------------------- loop

    def train(self) -> dict[str, Any]:
        """Run to the last frame; returns what goes into result.json."""
        if (checkpoint := self.directory.load_checkpoint()) is not None:
            self.load_state_dict(checkpoint)
            print(f"continuing at frame {self.frame:,}", flush=True)
        elif (earlier := revived(self.directory, self.parts.memory)) is not None:
            self._revive(earlier)
        self.started, self.resumed_at = time.monotonic() - self.wall_seconds, self.step
        self.resumed_offline = self.offline
        progress: Any = tqdm(
            total=self.last_frame,
            initial=self.frame,
            unit="frame",
            disable=None,
            smoothing=0.02,
            desc=self.config["phase"],
            dynamic_ncols=True,
        )
        try:
            with stops_go_to(self._on_signal), progress as self.bar:
                self.bar._time = time.monotonic  # tqdm's own clock may jump
                self.bar.unpause()
                self._learn_offline()
                while not self._at_border():
                    before = self.frame
                    self._advance()
                    self.bar.update(self.frame - before)
        except NotFinite as error:
            raise UserError(f"{error}; stopped, {self.directory.newest()}") from error
        except BrokenOff:
            assert self.signum is not None, "a handler raised it"
            raise Interrupted(
                self.signum, f"compiling was broken off; {self.directory.newest()}"
            ) from None
        self._keep_choices()
        return self._result()

    def _revive(self, state: dict[str, Any]) -> None:
        """Go on where a shorter pre-training ended, from its snapshot and its data (run/longer.py)."""
        p, snapshot = self.parts, state["snapshot"]
        for module, name in ((p.learner, "learner"), (p.objective, "objective")):
            load_weights(module, snapshot[name])
        p.learner.set_extra_state(snapshot["optimizers"])
        p.objective.set_extra_state(snapshot["objective_optimizers"])
        p.experience.load_state_dict(state["memory"])
        self.logger.go_on(state["logs"])
        self.step = state["step"]
        self.info = {**self.info, "revived_at": self.frame}
        p.rng.begin_anew(self.frame)
        p.env.seed(stream_seed(self.config["seed"], "env", self.frame))
        print(
            f"continuing at frame {self.frame:,} from a snapshot and its data: weights, moments and "
            "transitions go on, the episode and the random streams start anew; not bit for bit",
            flush=True,
        )

    def _learn_offline(self) -> None:
        """Before the first frame: updates on the data of the pre-training alone."""
        p = self.parts
        if self.offline >= self.offline_updates:
            return
        for _ in tqdm(
            range(self.offline, self.offline_updates),
            total=self.offline_updates,
            initial=self.offline,
            unit="update",
            desc="offline",
            disable=None,
            leave=False,
        ):
            self._pause()
            self.logger.add(p.learner.learn(p.memory, p.objective, 0))
            self.offline += 1
        self._log()

    def _on_signal(self, signum: int, _) -> None:
        self.signum = signum
        if any(capture.making for capture in self.parts.captures):
            raise BrokenOff  # compiling may take minutes, more than a cluster waits

    def _at_border(self) -> bool:
        """What happens between two steps: log, checkpoint, evaluate, snapshot. True when the run is
        complete."""
        config, frame = self.config, self.frame
        done = frame >= self.last_frame
        self._pause()
        last = done and config["keep_checkpoint"]
        if last:
            # Before anything that only the end of a run does: more frames go on as if there had
            # been no end.
            self.save_checkpoint()
        if frame and (frame % config["log_every_frames"] == 0 or done) and self.logger.counts:
            self._log()
        due = frame % config["checkpoint_every_frames"] == 0 and self.step > self.resumed_at
        if due and not last:
            # before the evaluation, so that a kill during it repeats nothing but it
            self.save_checkpoint()
        if frame % config["eval_every_frames"] == 0 or done:
            self._evaluate()
        if frame in config["snapshots"] or done:
            self.save_snapshot()
        if done and config.get("save_replay"):
            self._save_replay()
        return done

    def _advance(self) -> None:
        """One environment step: choose a skill and an action, learn if an update is due, step,
        remember."""
        p, memory = self.parts, self.parts.replay
        if self.time_step is None or self.time_step.last():
            self.time_step = p.env.reset()
            require_finite(self.frame, observation=self.time_step.observation)
            memory.begin(self.time_step.observation, physics=self._physics())
        obs = self.time_step.observation
        shown = obs if p.sight is None else p.sight.for_choice(p.skills, obs)
        skill = p.skills.select(shown, self.step, first=self.time_step.first())
        action = self._act(obs, skill, explore=True)
        if p.learner.due(memory, self.step):
            self.logger.add(p.learner.learn(memory, p.objective, self.step))
        self.logger.add(p.skills.update(p.to_choose_by, self.step))
        following = p.env.step(action)
        require_finite(
            self.frame,
            observation=following.observation,
            reward=following.reward,
            discount=following.discount,
        )
        memory.add(
            action,
            skill,
            following.reward,
            following.discount,
            following.observation,
            task_rewards=p.env.task_rewards() or None,
            physics=self._physics(),
        )
        self._show(obs, following.observation)
        p.skills.observe(following.reward)
        self.time_step = following
        self.step += 1
        self.episode_return += following.reward
        if following.last():
            self.logger.add({"episode/return": torch.tensor(self.episode_return)})
            self.episode_return, self.episodes = 0.0, self.episodes + 1

    def _show(self, obs: np.ndarray, next_obs: np.ndarray) -> None:
        """An objective that keeps recent states gets the transition, of pixels its features."""
        p = self.parts
        if p.sight is None:
            p.objective.observe(obs, next_obs)
        elif p.objective.observes:
            p.objective.observe(p.sight.see(obs), p.sight.see(next_obs))

    def _physics(self) -> np.ndarray | None:
        return self.parts.env.physics_state() if self.keeps_physics else None

    def _act(self, obs: np.ndarray, skill: np.ndarray, *, explore: bool) -> np.ndarray:
        action = self.parts.learner.act(obs, skill, self.step, explore=explore)
        if not np.isfinite(action).all():
            # names the quantity that went first, if it is in the open window
            self._require_finite()
            raise NotFinite(f"the action is not finite at frame {self.frame}")
        return action

    def _evaluate(self) -> None:
        self.last_eval = self.evaluator.evaluate(self.frame)
        self.logger.add_eval(self.frame, self.last_eval)
        self.logger.add_media(self.frame)
        line, words = self.evaluator.describe(self.last_eval)
        self.bar.set_postfix_str(words)
        tqdm.write(f"frame {self.frame:>10,}  {line}")

    # -------------------------------------------------------------------------------------- records

    def _log(self) -> None:
        elapsed = time.monotonic() - self.started
        fps = (self.step - self.resumed_at) * self.repeat / max(elapsed - self.wall_seconds, 1e-9)
        self.logger.close_window(
            self.frame, {"episodes": self.episodes, "seconds": elapsed, "fps": fps}
        )
        self.directory.note(self.parts.choices)

    def _require_finite(self) -> None:
        """Look, before anything is saved, whether all that was learned since the last save and all
        weights are finite numbers."""
        p = self.parts
        self.logger.means(self.frame)
        for owner, module in (
            ("learner", p.learner),
            ("objective", p.objective),
            ("selector", p.skills.network),
        ):
            if module is None:
                continue
            for name, tensor in weights(module).items():
                if not torch.isfinite(tensor).all():
                    raise NotFinite(f"{owner} weight {name} is not finite at frame {self.frame}")
            for name, optimizer in module.optimizers.items():
                if not all(
                    torch.isfinite(t).all() for s in optimizer.state.values() for t in s.values()
                ):
                    raise NotFinite(f"{owner} optimiser {name} is not finite at frame {self.frame}")

    def save_snapshot(self) -> None:
        self._require_finite()
        p = self.parts
        spec = {
            "obs_dim": p.env.obs_dim,
            "action_dim": p.env.action_dim,
            "skill_dim": p.skills.space.dim,
        }
        save_snapshot(
            self.directory.snapshot_path(self.frame),
            frame=self.frame,
            seed=self.config["seed"],
            agent=self.config["agent"]["name"],
            domain=self.config["domain"]["name"],
            spec=spec,
            config=self.config,
            learner=weights(p.learner),
            objective=weights(p.objective),
            skills=weights(p.skills.network) if p.skills.network else {},
            settled=None if (skill := p.skills.settled()) is None else skill.tolist(),
            **self._moments(),
        )

    def _moments(self) -> dict[str, Any]:
        """Of the optimisers, for whoever goes on from the snapshot with the data beside it."""
        if not self.config.get("save_replay"):
            return {"optimizers": {}}
        p = self.parts
        return {
            "optimizers": p.learner.get_extra_state(),
            "objective_optimizers": p.objective.get_extra_state(),
        }

    def _save_replay(self) -> None:
        p = self.parts
        data.save(
            self.directory.path / data.FILE,
            p.experience,
            tasks=list(p.env.tasks),
            env=self.config["domain"]["primal_task"],
            one_hot=p.skills.space.one_hot,
            frame=self.frame,
            action_repeat=self.repeat,
        )

    def save_checkpoint(self) -> None:
        self._require_finite()
        self.directory.save_checkpoint(self.frame, self.state_dict())

    def _pause(self) -> None:
        """Save and leave if a signal has arrived. An evaluation in which it arrives is made again
        after the resume."""
        if self.signum is None:
            return
        if self.step > self.resumed_at or self.offline > self.resumed_offline:
            self.save_checkpoint()
        raise Interrupted(self.signum, f"saved at frame {self.frame}")

    def state_dict(self) -> dict[str, Any]:
        p = self.parts
        state = {name: getattr(p, name).state_dict() for name in self.kept}
        return {
            **state,
            "env": self._env_state(),
            "logger": self.logger.state_dict(),
            "step": self.step,
            "offline": self.offline,
            "episode_return": self.episode_return,
            "episodes": self.episodes,
            "wall_seconds": time.monotonic() - self.started,
            "revived_at": self.info.get("revived_at", 0),
        }

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
        self.offline = state.get("offline", 0)  # checkpoints from before there was such a thing
        if state.get("revived_at"):
            self.info = {**self.info, "revived_at": state["revived_at"]}
        self._restore_env(state["env"])

    def _restore_env(self, state: dict[str, Any] | None) -> None:
        if state is None:
            print(
                "this environment cannot be restored: the run continues with a new episode, not bit for bit"
            )
            self.time_step, self.episode_return = None, 0.0
            return
        try:
            self.time_step = self.parts.env.set_state(state)
        except NotRestorable as error:
            raise UserError(f"cannot continue {self.directory.path}: {error}") from error

    def _keep_choices(self) -> None:
        """Write choices.npz: the skills that a selector chose in its last episodes, one row per
        episode, -1 past its end."""
        if self.parts.skills.network is None:
            return
        played = {
            "training": self.parts.replay.recent_skills(TRAINING_EPISODES),
            "evaluation": [episode.skills.argmax(1) for episode in self.evaluator.episodes],
        }
        arrays: dict[str, Any] = {
            name: np.full((len(episodes), max(map(len, episodes), default=0)), -1, np.int16)
            for name, episodes in played.items()
        }
        for name, episodes in played.items():
            for row, episode in zip(arrays[name], episodes, strict=True):
                row[: len(episode)] = episode
        write_atomic(
            self.directory.path / "choices.npz", lambda file: np.savez_compressed(file, **arrays)
        )

    def _result(self) -> dict[str, Any]:
        curve = [
            {
                "frame": int(row["frame"]),
                **{k: float(row[k]) for k in ("return_mean", "return_std")},
            }
            for row in self.logger.eval.rows
        ]
        return summary(
            self.config,
            variant=self.directory.variant,
            frame=self.frame,
            final=self.last_eval,
            curve=curve,
            wall_seconds=time.monotonic() - self.started,
            **self.info,
            snapshot=self.directory.snapshot_path(self.frame).name,
            **({"choices": choices} if (choices := self.parts.choices) else {}),
        )
