"""Measurements, as ratios within one run: these machines are noisy."""

import argparse
from collections.abc import Callable, Collection

from run.cli.console import Parser, at_least


def a_word(key: str, choices: Collection[str]) -> Callable[[str], str]:
    """The type of an argument that may be written as preset=cpu or as cpu."""

    def parse(text: str) -> str:
        name = text.removeprefix(f"{key}=")
        if name not in choices:
            raise argparse.ArgumentTypeError(
                f"{key}={name} is not known; choose from {', '.join(choices)}"
            )
        return name

    return parse


def make_parser(title: str, repeats: int, **words: Collection[str]) -> Parser:
    """The parser of `[key=NAME] [repeats]`; the first choice of each word is its default."""
    parser = Parser(description=title.partition("\n")[0])
    for key, choices in words.items():
        parser.add_argument(
            key,
            nargs="?",
            type=a_word(key, choices),
            default=next(iter(choices)),
            metavar=f"{key}=NAME",
            help=f"{', '.join(choices)} (%(default)s)",
        )
    parser.add_argument(
        "repeats",
        nargs="?",
        type=at_least(1),
        default=repeats,
        help="of each measurement, in turns; the median counts (%(default)s)",
    )
    return parser
