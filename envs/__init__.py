"""Environments by name, each as an `Env`: flat observations, actions in [-1, 1], checkpoints."""

import importlib

import dm_env

from envs.base import Env, NotRestorable, check_repeat, check_seed
from envs.pixels import PixelEnv, RenderSettings
from envs.tasks import register

__all__ = ["DOMAINS", "TASKS", "Env", "NotRestorable", "RenderSettings", "make"]

DOMAINS = {
    "walker": ("stand", "walk", "run", "flip"),
    "quadruped": ("stand", "walk", "run", "jump"),
    "jaco": ("reach_top_left", "reach_top_right", "reach_bottom_left", "reach_bottom_right"),
}
# Domains whose tasks have one model and differ in their rewards alone. Jaco's put the brick, which is
# seen and can be pushed, elsewhere.
ONE_MODEL = ("walker", "quadruped")
TASKS = {f"{domain}_{task}": domain for domain, tasks in DOMAINS.items() for task in tasks}
NAMES = f"choose from {', '.join(TASKS)}, dummy, gymnasium:<ID>, some.module:function"


def make(
    name: str,
    *,
    seed: int,
    obs_type: str = "states",
    action_repeat: int = 1,
    render: RenderSettings | None = None,
) -> Env:
    """An environment by name: a key of TASKS, "dummy", "gymnasium:<ID>", or "some.module:function".

    The function takes `seed` and returns a dm_env.Environment or a gymnasium.Env. obs_type="pixels"
    gives what its camera sees, as `render` says.
    """
    if obs_type == "pixels":
        if render is None:
            raise ValueError(
                "obs_type=pixels needs to know what to draw; URLB's is "
                "render=RenderSettings(size=84, stack=3, shadows=True)"
            )
        action_repeat = check_repeat(action_repeat)
        inner = make(name, seed=seed)
        return PixelEnv(inner, seed=seed, settings=render, action_repeat=action_repeat)
    if obs_type != "states":
        raise ValueError(f"unknown obs_type {obs_type!r}; choose from states, pixels")
    seed, action_repeat = check_seed(seed), check_repeat(action_repeat)
    kind, _, rest = name.partition(":")
    if name in TASKS:
        return _task(name, seed, action_repeat)
    if name == "dummy":
        from envs.dummy import Dummy

        return Dummy(seed=seed, action_repeat=action_repeat)
    if not (kind and rest):
        raise ValueError(f"unknown environment {name!r}; {NAMES}")
    if kind == "gymnasium":
        from envs.gym import GymEnv, load

        return GymEnv(lambda seed: load(rest), seed=seed, action_repeat=action_repeat)
    return _from_function(kind, rest, seed, action_repeat)


# dm_control is imported only when asked for: it takes a second.


def _task(name: str, seed: int, action_repeat: int) -> Env:
    from envs.dmc import TaskEnv  # before the domain's module: it settles MUJOCO_GL

    domain = TASKS[name]
    module = importlib.import_module(f"envs.{domain}")
    task = name.removeprefix(f"{domain}_")
    tasks = tuple(f"{domain}_{each}" for each in DOMAINS[domain] if domain in ONE_MODEL)
    return TaskEnv(
        lambda seed: module.make(task, seed),
        seed=seed,
        action_repeat=action_repeat,
        name=name,
        tasks=tasks,
    )


def _from_function(module: str, function: str, seed: int, action_repeat: int) -> Env:
    try:
        factory = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"unknown environment {module}:{function} ({error}); {NAMES}") from error

    def build(seed: int):
        return factory(seed=seed)

    native = build(seed)
    if isinstance(native, dm_env.Environment):
        from envs.dmc import DMEnv as Adapter
    else:
        import gymnasium

        from envs.gym import GymEnv as Adapter

        if not isinstance(native, gymnasium.Env):
            raise ValueError(
                f"{module}:{function} returned {type(native).__name__}; "
                "it must return a dm_env.Environment or a gymnasium.Env"
            )
    return Adapter(build, seed=seed, native=native, action_repeat=action_repeat)


register(TASKS)
