"""The shipped policies in zoo/: what there is, and finished runs into it.

    python -m analysis.zoo list
    python -m analysis.zoo add RUN NAME=RUN ...

Each run becomes zoo/DOMAIN/AGENT.pt (the actor alone), with a card (.md) and a strip of its skills
(.png) beside it, and the name zoo:DOMAIN/AGENT, or the NAME that is given.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import torch

from agent import zoo
from analysis.card import card, draw_strip, measures, read_run, save_trimmed
from analysis.text import markdown_table
from run.cli.console import Parser
from run.cli.guard import run_command
from utils import UserError, load_snapshot, plural, write_text

LIMIT = 8_000_000  # bytes of all of zoo/: a clone stays small


def entries(words: list[str]) -> dict[str, Path]:
    """{DOMAIN/NAME: run} of RUN or NAME=RUN; every name once, pre-trainings only."""
    found: dict[str, Path] = {}
    for word in words:
        named = re.fullmatch(r"([\w-]+)=(.*)", word)
        run = Path(named[2] if named else word)
        result, payload, _ = read_run(run)
        if result["phase"] != "pretrain":
            raise UserError(
                f"{run} is a fine-tuning; the zoo holds pre-trainings, and python -m analysis.publish "
                "makes a folder of any run"
            )
        entry = f"{payload['domain']}/{named[1] if named else payload['agent']}"
        if entry in found:
            raise UserError(
                f"{found[entry]} and {run} would both be zoo:{entry}; give one of them as NAME=RUN"
            )
        found[entry] = run
    return found


def add(words: list[str], out: Path | None = None) -> None:
    out = out or zoo.ZOO
    for entry, run in entries(words).items():
        result, payload, snapshot = read_run(run)
        target = out / f"{entry}.pt"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as place:
            picture = Path(place) / "strip.png"
            draw_strip(snapshot, payload, picture)
            picture.replace(target.with_suffix(".png"))
        save_trimmed(target, payload)
        text = card(result, payload, f"zoo:{entry}", f"{target.stem}.png")
        write_text(target.with_suffix(".md"), text)
        told = ", ".join(f"{k} {v}" for k, v in measures(result).items())
        print(f"zoo:{entry}  {target.stat().st_size / 1000:.0f} kB  {told}", flush=True)
    write_text(out / "README.md", index(out))
    total = size(out)
    print(f"{out}: {total / 1e6:.2f} MB in all")
    if total > LIMIT:
        raise UserError(f"{out} has {total / 1e6:.1f} MB; it must stay below {LIMIT / 1e6:.0f}")


def size(out: Path) -> int:
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


def index(out: Path) -> str:
    """zoo/README.md: a line per policy."""
    rows = []
    for path in sorted(out.glob("*/*.pt")):
        payload = load_snapshot(path)
        entry = path.relative_to(out).with_suffix("")
        rows.append(
            [
                f"[`zoo:{entry}`]({entry}.md)",
                payload["config"]["preset"]["name"],
                f"{payload['frame']:,}",
                str(payload["spec"]["skill_dim"]),
                str(payload["seed"]),
            ]
        )
    return (
        "# Zoo\n\nPre-trained policies, actors only; how they are used stands in "
        "[docs/zoo.md](../docs/zoo.md). Each name links to its card.\n\n"
        + markdown_table(["policy", "preset", "frames", "skill_dim", "seed"], rows, right_from=2)
        + "\n"
    )


def show() -> None:
    for name in zoo.names():
        payload = load_snapshot(zoo.resolve(f"{zoo.PREFIX}{name}"))
        print(f"zoo:{name}  {payload['frame']:,} frames, skill_dim {payload['spec']['skill_dim']}")
    print(
        f"{plural(len(zoo.names()), 'policy').replace('policys', 'policies')}, {size(zoo.ZOO) / 1e6:.2f} MB"
    )


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the policies and their names")
    adding = commands.add_parser("add", help="finished pre-trainings into the zoo")
    adding.add_argument(
        "runs", nargs="+", metavar="RUN", help="directories (.../seed_1), or NAME=RUN"
    )
    adding.add_argument("--out", type=Path, help="another directory than zoo/")
    args = parser.parse_args()
    torch.set_num_threads(1)
    run_command(lambda: show() if args.command == "list" else add(args.runs, args.out), ValueError)


if __name__ == "__main__":
    main()
