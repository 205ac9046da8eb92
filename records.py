"""What the files of a run must hold, one schema for each kind: result.json, config.yaml, a snapshot,
replay.pt, and the tables that commands hand to each other.

Files are passed around between people, so a reader checks before it believes (run/files.py and
utils.load_snapshot do). A schema names what some command relies on; a file may hold more.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

DEPTH, NODES = 32, 100_000  # of nested lists and mappings; a run's own have 5 and some hundreds

Whole = Annotated[int, Field(ge=0, le=10**15)]
Dim = Annotated[int, Field(ge=0, le=10**6)]
Word = Annotated[str, Field(max_length=1000)]
SomeWord = Annotated[str, Field(min_length=1, max_length=1000)]
Phase = Literal["pretrain", "finetune"]


class Record(BaseModel):
    """A number is a finite number, a truth value is none, and a text is not parsed."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class Evaluation(Record):
    return_mean: float
    return_std: Annotated[float, Field(ge=0)]


class Point(Record):
    frame: Whole
    return_mean: float


class Skill(Evaluation):
    skill: Whole
    zero_shot: float


class Git(Record):
    commit: Word
    dirty: bool | None = None


class Result(Record):
    """result.json of a finished run; `best` and `per_skill` of skills=oracle."""

    phase: Phase
    agent: Word
    variant: Word
    domain: Word
    task: Word | None
    skills: Word | None
    seed: Whole
    frame: Whole
    score: float
    expert_score: float | None = None
    normalized: float | None = None
    final: Evaluation
    curve: list[Point]
    wall_seconds: Annotated[float, Field(ge=0)]
    versions: dict[str, Word] | None = None
    git: Git | None = None
    pretrained: Word | None = None
    per_skill: list[Skill] | None = None
    best: Skill | None = None


class Config(Record):
    """config.yaml of a run that was begun."""

    device: Word | None = None
    num_threads: Annotated[int, Field(ge=1, le=10**6)] | None = None
    skill_dim: Dim = 0


class Named(Record):
    name: Word


class AgentPart(Named):
    skill_space: Literal["none", "one_hot", "cube", "sphere", "gaussian"]
    objective: dict[str, Any] | None = None


class LearnerPart(Named):
    name: Literal["ddpg", "ppo"]
    hidden_dim: Annotated[int, Field(ge=1, le=2**16)]
    layers: Annotated[int, Field(ge=1, le=100)]


class DomainPart(Named):
    primal_task: Word


class TaskPart(Named):
    env: Word


class RenderPart(Record):
    size: Annotated[int, Field(ge=17, le=1024)]
    stack: Annotated[int, Field(ge=1, le=100)]


class PixelPart(Record):
    channels: Annotated[int, Field(ge=1, le=2**16)]
    feature_dim: Annotated[int, Field(ge=1, le=2**16)]


class SnapshotConfig(Record):
    phase: Phase
    seed: Whole
    skill_dim: Dim
    action_repeat: Annotated[int, Field(ge=1, le=10**6)]
    agent: AgentPart
    learner: LearnerPart
    domain: DomainPart
    preset: Named
    variant: Word | None = None
    task: TaskPart | None = None
    overrides: list[Word] = []
    obs_type: Literal["states", "pixels"] = "states"
    render: RenderPart | None = None
    pixels: PixelPart | None = None

    @model_validator(mode="after")
    def pixels_say_how_they_are_seen(self) -> SnapshotConfig:
        if self.obs_type == "pixels" and (self.render is None or self.pixels is None):
            raise ValueError("obs_type=pixels without render and pixels")
        return self


class Spec(Record):
    obs_dim: Dim
    action_dim: Dim
    skill_dim: Dim


class Snapshot(Record):
    """The payload of snapshot_<frame>.pt, but for the weights."""

    frame: Whole
    seed: Whole
    agent: Word
    domain: Word
    versions: dict[str, Word]
    spec: Spec
    config: SnapshotConfig
    learner: dict[str, Any]


class Row(Record):
    """A line of results.csv (python -m analysis.collect), whose cells are texts."""

    model_config = ConfigDict(strict=False, extra="allow", allow_inf_nan=False)
    phase: Phase
    domain: Word = ""
    task: Word = ""
    agent: Word
    variant: Word
    skills: Word = ""
    seed: Whole
    frame: Whole
    score: float
    wall_seconds: Annotated[float, Field(ge=0)]
    commit: Word = ""
    dirty: Word = ""
    torch: Word = ""
    config_hash: Word = ""


class Adapted(Record):
    """A line of what python -m analysis.adapt writes, whose cells are texts."""

    model_config = ConfigDict(strict=False, extra="allow", allow_inf_nan=False)
    method: SomeWord
    protocol: SomeWord
    agent: SomeWord
    domain: SomeWord
    task: SomeWord
    seed: Whole
    frame: Whole
    return_mean: float
    normalised: float
    pretrain_frames: Whole
    commit: Word
    command: Word


class Replay(Record):
    """The payload of replay.pt, but for its columns (run/data.py checks those)."""

    tasks: list[Word]
    env: Word
    one_hot: bool
    frame: Whole
    action_repeat: Annotated[int, Field(ge=1, le=10**6)]
    columns: dict[Word, Any]


def wrong(schema: type[Record], value: object) -> str:
    """What does not fit, in a few words that name the place; empty if all does."""
    try:
        schema.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        said = first["msg"].removeprefix("Input ").partition(" or instance")[0]
        return f"{where}: {said}" if where else said
    return ""


def not_plain(value: object) -> str:
    """Why a value is not made of mappings with names, lists, texts, numbers and truth values; empty
    if it is. A mapping that holds itself, or a thousand times the same one, is told by its depth or
    size."""
    nodes, left = 0, [(value, 0)]
    while left:
        each, depth = left.pop()
        nodes += 1
        if depth > DEPTH or nodes > NODES:
            return "it is nested without end" if depth > DEPTH else "it is too large"
        if isinstance(each, dict):
            if other := [key for key in each if not isinstance(key, str)]:
                return f"the name {other[0]!r} of a value is no text"
            left += [(inside, depth + 1) for inside in each.values()]
        elif isinstance(each, list | tuple):
            left += [(inside, depth + 1) for inside in each]
        elif isinstance(each, int) and abs(each) > 2**64:
            return "a number has too many digits"
        elif not isinstance(each, str | bool | int | float | None):
            return f"a {type(each).__name__} is neither text nor number"
    return ""
