"""What a Slurm job starts: python -u -m experiment.entry -m MODULE WORDS..., here submitit's module.

Importing submitit takes a second or more. A job that is warned by SIGUSR1 meanwhile would be ended by
the signal's default action and be lost, so the signals are taken first: a job that has not begun its
runs goes back into the queue as it is. `Pack` takes them over when it starts the runs.
"""

import runpy
import sys

from experiment.job import requeue_when_warned


def main() -> None:
    requeue_when_warned()
    # In front of -m stand options for Python itself, which has them already.
    sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
