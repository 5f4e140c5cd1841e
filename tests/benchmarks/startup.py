"""How long ``hangscope --help`` takes, against importing a command line library that the field uses.

``python -m tests.benchmarks.startup``: exit status 1 when it is over the bar. Needs ``pip install typer``.
"""

import importlib.util
import subprocess
import sys
import time

BAR = 3.0
ROUNDS = 7


def seconds(*arguments: str) -> float:
    """The fastest of some runs of this interpreter, in seconds of wall time."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.monotonic()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.monotonic() - start)
    return best


def main() -> int:
    if importlib.util.find_spec("typer") is None:
        print("typer is not installed; for this benchmark: pip install typer")
        return 0
    own = seconds("-m", "hangscope", "--help")
    other = seconds("-c", "import typer")
    print(f"hangscope --help   {own * 1e3:7.1f} ms")
    print(f"import typer       {other * 1e3:7.1f} ms")
    print(f"ratio              {own / other:7.2f}   (bar {BAR})")
    return 0 if own <= BAR * other else 1


if __name__ == "__main__":
    sys.exit(main())
