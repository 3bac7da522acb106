"""Run a function of a module of benchmarks in this process: the other end of `figures.apart`.

    python -m autograder.bench.inside autograder.bench.tvm relay_figures []

It prints each figure as a line of JSON.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings

from autograder.bench.figures import tell


def main(module: str, function: str, arguments: str) -> None:
    warnings.simplefilter("ignore")
    for news in getattr(importlib.import_module(module), function)(*json.loads(arguments)):
        tell(news)


if __name__ == "__main__":
    main(*sys.argv[1:])
