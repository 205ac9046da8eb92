"""A finished run as a folder for a model hub, without a network.

    python -m analysis.publish RUN [--out DIR]

Writes model.safetensors (the weights that act), config.json, README.md (the card) and skills.png.
`analysis.publish.load_published(DIR)` makes a policy of such a folder again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from agent.policy import Policy, policy_from
from analysis import safetensors
from analysis.card import card, draw_strip, measures, read_run, trimmed
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import read_json, write_text

PARTS = ("learner", "skills")  # of a snapshot, whose tensors go into the file


def publish(run: Path, out: Path) -> None:
    result, payload, snapshot = read_run(run)
    small = trimmed(payload)
    out.mkdir(parents=True, exist_ok=True)
    draw_strip(snapshot, payload, out / "skills.png")
    tensors = {f"{part}.{name}": tensor for part in PARTS for name, tensor in small[part].items()}
    safetensors.save(out / "model.safetensors", tensors, {"format": "pt"})
    plain = {key: value for key, value in small.items() if key not in (*PARTS, "objective")}
    write_text(out / "config.json", json.dumps(plain, indent=2) + "\n")
    write_text(
        out / "README.md",
        front_matter(result, payload) + card(result, payload, "RUN", "skills.png"),
    )
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}, {size / 1000:.0f} kB")


def front_matter(result: dict[str, Any], payload: dict[str, Any]) -> str:
    """The yaml that hubs read at the top of a card."""
    config = payload["config"]
    lines = ["---", "license: mit", "library_name: amped", "tags:"]
    lines += [
        f"- {tag}" for tag in ("reinforcement-learning", "skill-discovery", config["agent"]["name"])
    ]
    lines += [f"- {config['domain']['name']}", "metrics:"]
    lines += [f"- {name}" for name in measures(result)]
    return "\n".join([*lines, "---", "", ""])


def load_published(folder: str | Path) -> Policy:
    """The policy of a folder that `publish` made, perhaps after a way over a hub."""
    folder = Path(folder)
    payload = read_json(folder / "config.json")
    tensors = safetensors.load(folder / "model.safetensors")
    for part in PARTS:
        prefix = f"{part}."
        payload[part] = {
            k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)
        }
    return policy_from(payload)


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", type=Path, help="directory of a finished run (.../seed_1)")
    parser.add_argument("--out", type=Path, help="folder to write (<run>/published)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    run_command(lambda: publish(args.run, args.out or args.run / "published"), ValueError)


if __name__ == "__main__":
    main()
