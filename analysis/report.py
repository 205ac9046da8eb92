"""One page with every table and figure that the runs at hand allow.

    python -m analysis.report [key=value ...] (--help)

The paper's numbers stand beside ours, with the command that makes each. Runs come from run_root;
where it has none, from results/.
"""

from __future__ import annotations

import re
from pathlib import Path

from analysis import dashboard, html, maze_tradeoff
from analysis.collect import collected, settings
from analysis.frames.gathered import Gathered, find, nothing
from analysis.media import read_note
from analysis.scores import conflicts
from analysis.table import aggregates, headline, make_figures, make_tables, shown_of
from analysis.text import markdown_records, short_commit
from experiment.definition import load, names, read, split_words
from run.cli import own
from run.cli.console import Parser, at_least, leave_out, printable
from run.cli.guard import run_command
from run.results import git_state
from utils import RESULTS, Unreadable, UserError, write_text

PAPER = ("URLB", "Ablations", "Conflict", "Mazes", "Theory", "The paper against itself")
FILMS = 12  # at most so many are put into the page
FILM_BYTES = 30_000_000  # of all of them together
THEORY = {
    "theorem": "Theorem 1 by simulation: how often the greedy selector errs, beside what the theorem allows.",
    "toy": "The AnInfoNCE toy: objective and loss against the distance of two Gaussians.",
    "structure": "How much of the conflict is structural: one critic, one bootstrap, two rewards.",
}
CAPTIONS = {
    "aggregate": "Aggregate scores of all complete seeds, with bootstrap intervals.",
    "profiles": "Share of runs above each score.",
    "curves": "Scores over frames of fine-tuning, per task.",
    "returns_over_frames": "Returns over frames of fine-tuning, per task, with intervals over seeds.",
    "bars": "Episode returns per task; hatched: the paper's.",
}


# ----------------------------------------------------------------------------------------- sections


def of_kind(*kinds: str) -> list[str]:
    return [name for name in names() if read(name)["figure"].get("kind") in kinds]


def paper_of(name: str) -> str | None:
    """The table of the paper that an experiment stands beside."""
    return read(name)["figure"].get("paper")


def commands(name: str, script: str) -> str:
    where = "".join(f"{word} " for word in own.options())
    return html.command(
        f"python -m analysis.plan {where}experiment={name}",
        f"python -m analysis.{script} {where}experiment={name}",
    )


def provenance(found: Gathered) -> str:
    """Which commits and machines the rows are from."""
    rows = found.evaluations[found.evaluations["final"]]
    commits = ", ".join(
        sorted(
            {
                short_commit(commit, dirty)
                for commit, dirty in zip(rows["commit"], rows["dirty"], strict=True)
            }
        )
    )
    devices = ", ".join(sorted(set(rows["device"])))
    return note(f"{len(rows)} finished runs on {devices}; commit {commits}.")


def note(text: str) -> str:
    return f'<p class="note">{html.escape(text)}</p>'


def heading(name: str, title: str) -> str:
    return f'<h3 id="{html.escape(name)}">{html.escape(f"{name}: {title}")}</h3>'


def shown(path: Path, caption: str, root: Path) -> str:
    """A picture or a film from a run_root, or a line that says why not."""
    try:
        return html.picture(path, caption, root)
    except Unreadable as error:
        return note(leave_out(error))


def scores_section(name: str, words: list[str], root: Path) -> str:
    """Tables and figures of one experiment; of one that the paper does not have nothing, unless it
    has runs."""
    entry, found = read(name), find(name, words, root)
    if found is None and not name.startswith("table_"):
        return ""
    gathered = found or nothing()
    parts = [heading(name, entry["title"]), commands(name, "table")]
    if found is not None:
        parts.append(provenance(found))
    has = shown_of(load([f"experiment={name}", *words])) if found is not None else None
    made = make_tables(entry["figure"].get("paper"), entry["title"], gathered, has)
    numbers, gaps = aggregates(gathered)
    figures = make_figures(entry["figure"].get("paper"), gathered, numbers)
    parts += [html.picture(figure, CAPTIONS[part]) for part, figure in figures.items()]
    parts += [
        html.fold(
            f"Table: {part.replace('_', ', ')}",
            html.prose(table.markdown()),
            unfolded=part == "returns",
        )
        for part, table in made.items()
    ]
    if len(numbers.get("improvement", ())):  # a single method has nobody to be better than
        text = markdown_records(numbers["improvement"].round(3).astype(str).to_dict("records"))
        parts.append(html.fold("Probability of improvement", html.prose(text)))
    if said := headline(entry["figure"].get("paper"), numbers):
        parts.append(html.fold("AMPED's gains by IQM", html.prose(said)))
    missing = [*gathered.gaps, *gaps]
    return "".join(parts) + (
        html.fold(f"Missing ({len(missing)} lines)", html.bullets(missing)) if missing else ""
    )


def conflict_section(words: list[str], root: Path) -> str:
    found = find("fig_conflict", words, root) or find("walker_small", words, root)
    train = found.train if found is not None and len(found.train) else None
    return (
        commands("fig_conflict", "table")
        + ("" if found is None else provenance(found))
        + html.picture(
            conflicts.draw(train),
            "Share of conflicts and cosine of the two gradients over pre-training.",
        )
        + html.prose(conflicts.beside(conflicts.summary((found or nothing()).train)))
    )


def maze_section(root: Path) -> str:
    """As python -m analysis.figure left them: below run_root, else as shipped."""
    study = sorted((RESULTS / "maze").glob("maze_study_*.csv"))
    parts = (
        [
            html.command(
                f"python -m analysis.maze_tradeoff {' '.join(f'results/maze/{path.name}' for path in study)} "
                "--out tradeoff.png"
            ),
            html.picture(
                maze_tradeoff.tradeoff(maze_tradeoff.read(study)),
                "Coverage against information, a dot per run of the shipped study.",
            ),
        ]
        if study
        else []
    )
    for name in of_kind("table", "skills", "bars", "evolution"):
        title = read(name)["title"]
        parts.append(heading(name, title))
        parts.append(html.command(f"python -m analysis.figure experiment={name}"))
        picture, base = first_of(f"maze/{name}.png", f"figures/{name}.png", root)
        if not picture.exists():
            parts.append(note("Not made yet."))
            continue
        parts.append(shown(picture, title, base))
        if (table := picture.with_suffix(".md")).exists():
            try:
                text = read_note(table, base).partition("\n")[2]
                parts.append(html.fold("Table", html.prose(text)))
            except Unreadable as error:
                parts.append(note(leave_out(error)))
    return "".join(parts)


def first_of(shipped: str, mine: str, root: Path) -> tuple[Path, Path]:
    """The file of a run_root where there is one, else the shipped one, each with where it must
    lie."""
    return (root / mine, root) if (root / mine).exists() else (RESULTS / shipped, RESULTS)


def theory_section(root: Path) -> str:
    parts = []
    for name, caption in THEORY.items():
        picture, base = first_of(f"theory/{name}.png", f"theory/{name}.png", root)
        parts += [html.command(f"python -m analysis.{name}"), shown(picture, caption, base)]
    return "".join(parts)


def skills_section(root: Path) -> str:
    """The last picture of each maze run, and films."""
    last: dict[Path, tuple[int, Path]] = {}  # run directory -> frame and picture
    for path in root.glob("pretrain/*/*/*/seed_*/skills_*.png"):
        if frame := re.fullmatch(r"skills_([0-9]{1,15})", path.stem):
            last[path.parent] = max(last.get(path.parent, (-1, path)), (int(frame[1]), path))
    parts = [
        shown(path, f"{path.parent.relative_to(root / 'pretrain')}, frame {frame:,}", root)
        for frame, path in sorted(last.values(), key=lambda each: each[1])
    ]
    films: list[str] = []
    rest: list[Path] = []
    size = 0
    for path in sorted(root.glob("**/*.mp4"), key=lambda path: path.lstat().st_mtime, reverse=True):
        size += path.lstat().st_size
        if len(films) < FILMS and size <= FILM_BYTES:
            films.append(shown(path, str(path.relative_to(root)), root))
        else:
            rest.append(path)
    parts += films
    parts += [
        html.picture(path, caption)
        for path, caption in (
            (RESULTS / "gallery.png", "The environments."),
            (RESULTS / "filmstrip_walker.png", "Skills of a walker as filmstrips."),
        )
        if path.exists() and not parts
    ]
    more = html.bullets(str(path) for path in rest)
    return f'<div class="row">{"".join(parts)}</div>' + (
        html.fold(f"{len(rest)} more films", more) if rest else ""
    )


def runs_section(root: Path) -> str:
    """What python -m analysis.collect finds: every finished run, whatever experiment it belongs
    to."""
    rows = settings(collected(root))
    listed = (
        html.fold(
            f"{len(rows)} settings", html.prose(markdown_records(rows)), unfolded=len(rows) <= 20
        )
        if rows
        else ""
    )
    return html.command(f"python -m analysis.collect run_root={root}") + (
        listed or note("No finished run.")
    )


def paper_section() -> str:
    text = (RESULTS / "paper" / "README.md").read_text()
    return html.prose(
        "Every number that the paper prints is in `results/paper/*.csv`, and the claims of its text in "
        "`claims.csv`. Where they disagree with each other:"
    ) + html.fold("All disagreements", html.prose(text.partition("\n")[2]))


# --------------------------------------------------------------------------------------------- page


def make(words: list[str], out: Path) -> Path:
    given = split_words(words)
    if "experiment" in given:
        raise UserError(
            "experiment= has no place here, leave it away: the report shows all of them"
        )
    root = Path(given.get("run_root", "runs"))
    if given and not root.is_dir():  # the words are those of runs
        raise UserError(
            f"run_root={root} is no directory; give the run_root of your runs, or no words at all"
        )
    tables = of_kind("scores")
    first = [name for name in ("table_urlb", *tables) if name in tables]
    sections = {
        "Your runs": dashboard.section(root) if root.is_dir() else "",
        "Your tables": "".join(
            scores_section(name, words, root) for name in tables if paper_of(name) is None
        ),
        "URLB": "".join(
            scores_section(name, words, root)
            for name in dict.fromkeys(first)
            if paper_of(name) == "urlb"
        ),
        "Ablations": "".join(
            scores_section(name, words, root)
            for name in tables
            if paper_of(name) not in ("urlb", None)
        ),
        "Conflict": conflict_section(words, root),
        "Mazes": maze_section(root),
        "Theory": theory_section(root),
        "Skills": skills_section(root),
        "Runs": runs_section(root),
        "The paper against itself": paper_section(),
    }
    if root.is_dir():  # own runs first, the paper folded below them
        sections |= {
            heading: html.fold("show", content)
            for heading, content in sections.items()
            if heading in PAPER and content
        }
    sections = {heading: content for heading, content in sections.items() if content}
    state = git_state()
    lead = (
        "Adaptive multi-objective projection for balancing exploration and skill diversification: the paper's "
        f"tables and figures beside the runs at hand (`{root}`"
        + (", which is not there: shipped results only" if not root.is_dir() else "")
        + ")."
    )
    commit = (
        f", commit {state['commit'][:7]}{' with changes' if state['dirty'] else ''}"
        if state
        else ""
    )
    path = out / "index.html"
    write_text(
        path,
        html.page("AMPED: report", lead, sections, f"Made by `python -m analysis.report`{commit}."),
    )
    return path


def main() -> None:
    parser = Parser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "words",
        nargs="*",
        metavar="key=value",
        help="run_root=DIR, preset=cpu and other keys that "
        "your runs were given, as python -m analysis.plan takes them",
    )
    parser.add_argument("--out", type=Path, default=Path("report"), help="directory (%(default)s)")
    parser.add_argument(
        "--serve",
        action="store_true",
        help="a live page of your runs on this machine, until Ctrl-C",
    )
    parser.add_argument(
        "--port", type=at_least(0, 65535), default=8765, help="of --serve (%(default)s)"
    )
    own.add_option(parser)
    args = parser.parse_intermixed_args()

    def task() -> None:
        own.use(args.config_dir)
        if args.serve:
            from analysis import serve  # the only file that listens to anybody

            root = Path(split_words(args.words).get("run_root", "runs"))
            return serve.serve(root, args.port)
        print(f"report: {printable(make(args.words, args.out))}")

    run_command(task)


if __name__ == "__main__":
    main()
