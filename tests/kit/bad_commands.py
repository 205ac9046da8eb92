"""Wrong input for the commands without Hydra: sweep.py, python -m analysis.NAME and python -m
benchmarks.NAME."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.kit.bad_input import BIG, OUTSIDE, Case, leaves, wrong_values

NUMBERS = ["-1", "1.5", "x", "", "nan", BIG, "٣x"]  # where a count belongs
# what reads an experiment
PLANNERS = [("analysis.plan", ()), ("sweep", ("action=plan",)), ("analysis.table", ())]

GOOD = {
    "title": "'t'",
    "preset": "smoke",
    "methods": "[amped]",
    "grid": "{domain: walker, seed: [1, 2]}",
    "figure": "{kind: scores, paper: urlb}",
}
SHAPES = {  # a key of an experiment's yaml -> what it cannot be
    "title": ["[1]", "{a: 1}", "3", "null"],
    "preset": [
        "[smoke]",
        "{}",
        "null",
        "3",
        "{name: [1]}",
        "zzz",
        "../x",
        "{name: smoke, nothing: 1}",
    ],
    "methods": [
        "[]",
        "3",
        "null",
        "amped",
        "[3]",
        "[[amped]]",
        "[{label: x}]",
        "[{agent: [a]}]",
        "[zzz]",
        "[../x]",
        "[{agent: amped, label: 3}]",
        "[{agent: amped, finetune: 3}]",
        "[{agent: amped, learner.lr: fast}]",
        "[{agent: amped, variant: ../../x}]",
        "[{agent: amped, 3: 4}]",
        "[{agent: amped, +a: 1}]",
    ],
    "grid": [
        "[]",
        "3",
        "null",
        "{}",
        "{seed: 1}",
        "{domain: {a: 1}}",
        "{domain: walker, seed: many}",
        "[3]",
        "{domain: moon}",
        "{domain: ../x}",
        "{domain: walker, seed: -1}",
        "{domain: walker, nothing: 3}",
        "{domain: walker, run_root: ''}",
        "{domain: walker, seed: 2020-01-01}",
        "{domain: walker, seed: .nan}",
    ],
    "figure": ["3", "null", "[1]", "{}"],
    "finetune": [
        "3",
        "{}",
        "[walker_run]",
        "{task: zzz}",
        "{task: 3}",
        "{task: [[walker_run]]}",
        "{task: ../x}",
        "{task: all, nothing: 1}",
        "{task: all, seed: x}",
    ],
    "nothing": ["3"],
}
BROKEN = [
    "title: [",
    "\t- x",
    "{",
    "- a\n- b",
    "3",
    "",
    "'",
    "a: b: c",
    "[" * 3000,
    "\x00",
    "&a [*a, *b]",
    "!!python/object/apply:os.system ['touch sprung']",
    "title: !!python/name:os.system",
    "!!python/object/new:subprocess.Popen [['touch', 'sprung']]",
    "preset: !!python/module:os",
]


def experiment(change: dict[str, str]) -> str:
    return "\n".join(f"{key}: {value}" for key, value in {**GOOD, **change}.items())


@st.composite
def yamls(draw) -> tuple[Case, str]:
    """An experiment's file that is broken, tagged or of the wrong shape."""
    text = draw(
        st.one_of(
            st.sampled_from(BROKEN),
            st.sampled_from(
                [experiment({key: each}) for key, wrong in SHAPES.items() for each in wrong]
            ),
            st.sampled_from(sorted(GOOD.keys() - {"figure"})).map(
                lambda gone: "\n".join(f"{k}: {v}" for k, v in GOOD.items() if k != gone)
            ),
        )
    )
    command, words = draw(st.sampled_from(PLANNERS))
    return Case(command, ("experiment=own.yaml", *words), ("own.yaml", "=", "is not a key")), text


@st.composite
def words(draw) -> Case:
    """Words of an experiment that is fine."""
    command, more = draw(st.sampled_from(PLANNERS))
    found = leaves("pretrain", ("agent=amped",))
    key = draw(
        st.sampled_from(
            [
                "seed",
                "learner.lr",
                "agent.objective.metric",
                "num_seed_frames",
                "use_tb",
                "video_size",
            ]
        )
    )
    outside = draw(st.sampled_from(OUTSIDE))
    word = draw(
        st.one_of(
            st.sampled_from(
                [each for each in wrong_values(key, found[key]) if each and "," not in each]
            ).map(lambda value: f"{key}={value}"),
            st.sampled_from(
                [
                    f"variant={outside}",
                    f"domain={outside}",
                    f"methods={outside}",
                    f"preset={outside}",
                    f"task={outside}",
                    f"experiment={outside}",
                    "nothing",
                    "nothing=1",
                    "pretrain.nothing=1",
                    "seed=",
                    "+seed=1",
                    "agent=amped",
                    "phase=finetune",
                    "hydra.run.dir=x",
                    "num_train_frames=8",
                    "seed=[",
                    "seed=!!python/object/apply:os.getcwd []",
                    "--nothing",
                ]
            ),
        )
    )
    given = (word,) if word.startswith("experiment=") else ("experiment=smoke", word)
    named = (word.partition("=")[0].removeprefix("pretrain."),)
    if word.startswith("methods="):  # a method is named as the agent of its runs
        named += ("agent=",)
    return Case(command, (*given, *more), named)


CLUSTER = [
    *(
        f"cluster.{key}={value}"
        for key in ("workers", "runs_per_gpu")
        for value in ("0", "-1", "x", "1.5", "true", "[")
    ),
    "cluster.gpus=x",
    "cluster.gpus=[a]",
    "cluster.gpus=[-1]",
    "cluster.nothing=1",
    "cluster=moon",
    "cluster=../x",
    "action=fly",
    "action=",
    "cluster.workers=!!python/object/apply:os.getcwd []",
]
SLURM = [
    *(
        f"cluster.{key}={value}"
        for key in ("hours", "mem_gb", "cpus", "parallel")
        for value in ("0", "-1", "x", ".nan")
    ),
    "cluster.partition=[1]",
    "cluster.setup=3",
    "cluster.setup=[3]",
    "cluster.extra=3",
    "cluster.follow=3",
    "cluster.finetune.nothing=1",
    "cluster.finetune.hours=x",
    "cluster.hours=.inf",
]
SWEEPS = [
    Case("sweep", ("experiment=smoke", word), (word.partition("=")[0],)) for word in CLUSTER
] + [
    Case(
        "sweep",
        ("experiment=smoke", "cluster=slurm", "action=plan", word),
        (word.partition("=")[0].replace("finetune.hours", "hours"),),
    )
    for word in SLURM
]

FIGURE, FILM, MAZE, TREE = (
    "analysis.figure",
    "analysis.film",
    "analysis.maze",
    "experiment=fig_tree6",
)
MEASURE, SKILLS = ("measure", "--out", "x.csv"), ("skills", "x.pt", "--out", "film")
COUNTS = [  # command, words before, option
    *((FIGURE, (TREE,), option) for option in ("--workers", "--episodes", "--mine-steps")),
    *((MAZE, MEASURE, option) for option in ("--episodes", "--skills", "--seed")),
    *((FILM, SKILLS, option) for option in ("--steps", "--only", "--size")),
    (FILM, ("gallery", "--out", "x"), "--size"),
    *(("analysis.contextual", (), option) for option in ("--skills", "--steps", "--seeds")),
    *((f"analysis.{name}", (), "--seed") for name in ("toy", "theorem", "structure")),
]
OTHERS = [
    *(
        (f"analysis.{name}", ("--nothing",), ("--nothing", "required"))
        for name in (
            "plan",
            "figure",
            "table",
            "report",
            "collect",
            "curves",
            "choices",
            "selection",
            "maze_tradeoff",
        )
    ),
    *((f"benchmarks.{name}", ("many",), "many") for name in ("parallel", "env", "maze", "cost")),
    *((f"benchmarks.{name}", ("0",), "repeats") for name in ("env",)),
    ("benchmarks.parallel", ("0",), "frames"),
    ("benchmarks.cost", ("preset=big",), "preset=big"),
    ("benchmarks.cost", ("preset=cpu", "-1"), "-1"),
    ("benchmarks.maze", ("maze=round",), "maze=round"),
    ("benchmarks.hours", ("preset=cpu", "domain=moon"), "domain=moon"),
    ("analysis.verify", ("nowhere.csv",), "nowhere.csv"),
    ("analysis.verify", ("toy", "--row", "0"), "--row"),
    ("analysis.parity", ("folder",), "utils.py"),
    ("benchmarks.__main__", ("--out", "."), "--out"),
    ("analysis.curves", ("nowhere", "--out", "x.png"), "nowhere"),
    ("analysis.curves", ("nowhere",), "--out"),
    ("analysis.choices", ("a\nb",), "a\\nb"),
    ("analysis.selection", ("nowhere", "--out", "x"), "nowhere"),
    ("analysis.maze_tradeoff", ("nowhere", "--out", "x.png"), "nowhere"),
    ("analysis.collect", ("seed=1",), "seed=1"),
    ("analysis.maze_tradeoff", ("text.pt", "--out", "x.png"), "text.pt"),
    ("analysis.collect", ("run_root=no",), "no"),
    ("analysis.report", ("run_root=nowhere",), "nowhere"),
    ("analysis.report", ("nothing=1",), "run_root=runs"),
    ("analysis.report", ("experiment=smoke",), "experiment="),
    (MAZE, ("fly",), "fly"),
    (MAZE, (), "command"),
    (MAZE, ("measure", "--out", "x.csv"), "nothing to measure"),
    (MAZE, ("missed", "nowhere.pt"), "nowhere.pt"),
    (MAZE, ("measure", "--floor", "moon", "--skills", "3", "--out", "x.csv"), "--floor moon"),
    (MAZE, ("draw", "text.pt", "--out", "x.png"), "text.pt"),
    (MAZE, ("draw", "x", "--out", "p", "--titles", "a", "b"), "titles"),
    *(
        (FILM, ("skills", path, "--out", "film"), path)
        for path in ("nowhere.pt", "text.pt", "folder")
    ),
    *(
        (FIGURE, (TREE, "methods=amped", f"figure.kind={value}"), "figure.kind")
        for value in ("round", "[")
    ),
    *(
        (FIGURE, ("experiment=fig_evolution", f"figure.{key}={value}"), f"figure.{key}")
        for key in ("skill", "snapshots", "epochs")
        for value in ("x", "-1", "true")
    ),
    *(
        (
            FIGURE,
            ("experiment=fig_entropy_mi", "methods=amped", "seed=1", f"figure.{key}={value}"),
            f"figure.{key}",
        )
        for key in ("measures", "bounds")
        for value in ("3", "zzz", "[zzz]")
    ),
    (FIGURE, ("experiment=smoke",), "smoke"),
    ("analysis.table", (TREE,), "fig_tree6"),
    ("analysis.table", ("experiment=smoke", "figure.paper=zzz"), "figure.paper=zzz"),
    *(
        ("finetune", ("task=walker_run", f"snapshot={path}"), repr(path)[1:-1])
        for path in ("folder", "text.pt", "nowhere.pt", "a\nb")
    ),
]
COMMANDS = (
    SWEEPS
    + [
        Case(command, (*before, option, number), (option, number or "''"))
        for command, before, option in COUNTS
        for number in NUMBERS
    ]
    + [
        Case(command, words, (named,) if isinstance(named, str) else named)
        for command, words, named in OTHERS
    ]
)
