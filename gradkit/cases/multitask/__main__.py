"""Train the crane model with one of the fixes, or with none."""

import argparse

from gradkit.cases.multitask.attempts import FIXES
from gradkit.cases.multitask.train_multitask import add_arguments, run


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m gradkit.cases.multitask", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--fix", choices=FIXES, default="none")
    args = parser.parse_args(arguments)
    return run(args, *FIXES[args.fix])


if __name__ == "__main__":
    main()
