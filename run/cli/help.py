"""--help: the choices, then every key with the value that this command line gives it, by topic.

What a key is stands behind it in its yaml, as a comment; the same words are shown here.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import hydra
import yaml
from omegaconf import OmegaConf

from run.cli import own
from run.cli.schema import flatten, resolve
from utils import CONFIGS

# Topic -> keys, or beginnings of keys, in the order in which they are shown.
TOPICS: dict[str, tuple[str, ...]] = {
    "Which run": ("seed", "variant", "run_root", "snapshot", "snapshot_ts", "pretrain_variant"),
    "How long, and what is kept": (
        "num_train_frames",
        "num_seed_frames",
        "snapshots",
        "checkpoint_every_frames",
        "keep_checkpoint",
        "save_replay",
    ),
    "Evaluation and logs": (
        "eval_",
        "num_eval_episodes",
        "log_every_frames",
        "save_video",
        "video_",
        "use_",
        "wandb_project",
    ),
    "Machine": ("device", "num_threads", "compile", "cuda_graph", "tf32"),
    "Environment": ("obs_type", "action_repeat", "domain.", "task.", "render."),
    "The method": ("skill_dim", "skill_interval", "agent.", "surgery."),
    "The learner": ("learner.", "replay.", "pixels."),
    "Fine-tuning": ("skills.", "adapt.", "data."),
}
HIDDEN = re.compile(r"(preset|agent\.(show|per_domain|ddpg|ppo))\b|phase$|.*(_target_|name)$")
COMMENT = re.compile(r"^( *)([\w.]+):(.*?)(?:\s#\s*(.*))?$")


def comments(path: Path, prefix: str = "") -> dict[str, str]:
    """The comment behind each key of a yaml, by its dotted name."""
    found: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        match = COMMENT.match(line)
        if not match or line.lstrip().startswith(("#", "-")):
            continue
        indent, key, _, comment = match.groups()
        above = [each for each in above if each[0] < len(indent)]
        above.append((len(indent), key))
        if comment:
            found[".".join([*([prefix] if prefix else []), *(name for _, name in above)])] = comment
    return found


def all_comments(phase: str, chosen: dict[str, str]) -> dict[str, str]:
    """Of base.yaml, the script's own yaml, and the yamls of the groups that were chosen."""
    found = comments(CONFIGS / "base.yaml") | comments(CONFIGS / f"{phase}.yaml")
    for group, name in chosen.items():
        path = own.yamls(group).get(name)
        if path is not None:
            whole = "@package _global_" in path.read_text()
            found |= comments(path, "" if whole else group)
    return found


def topic_of(key: str) -> str:
    for topic, names in TOPICS.items():
        for name in names:
            if (name.endswith((".", "_")) and key.startswith(name)) or key == name:
                return topic
    # What an agent's yaml sets at the top level, such as alpha, is of the method.
    return "The method" if "." not in key else "Other"


def key_lines(config: dict[str, Any], told: dict[str, str], width: int) -> list[str]:
    flat = {key: value for key, value in flatten(config).items() if not HIDDEN.match(key)}
    topics: dict[str, list[str]] = {topic: [] for topic in (*TOPICS, "Other")}
    for key, value in flat.items():
        word = f"  {key}={shown(value)}"
        comment = told.get(key, "")
        line = f"{word:<44}  {comment}" if comment else word
        topics[topic_of(key)].append(line[:width].rstrip())
    lines = []
    for topic, some in topics.items():
        if some:
            lines += ["", f"{topic}:", *some]
    return lines


def shown(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip()
    return text.removesuffix("...").strip()


def show(phase: str, words: list[str]) -> None:
    """Print it for a command line, whose words may be none."""
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        cfg = hydra.compose(phase, [*words, *own.search_words()], return_hydra_config=True)
    groups = OmegaConf.to_container(cfg.hydra.runtime.choices)
    assert isinstance(groups, dict)
    template: str = cfg.hydra.help.template
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        config = resolve(hydra.compose(phase, [*words, *own.search_words()]))
    chosen = {str(group): str(name) for group, name in groups.items() if "/" not in str(group)}
    chosen = {group: name for group, name in sorted(chosen.items()) if own.yamls(group)}
    lines = [template.partition("\n$APP_CONFIG_GROUPS")[0].rstrip()]
    for group, name in chosen.items():
        lines.append(f"  {group}: {', '.join(own.yamls(group))} (here: {name})")
    lines += [
        "",
        "Any key below can be given as key=value; its value here is what these words give:",
    ]
    width = max(100, shutil.get_terminal_size((160, 24)).columns)
    print("\n".join([*lines, *key_lines(config, all_comments(phase, chosen), width)]))
