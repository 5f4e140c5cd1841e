"""A rank of a job that hangs, without torch: many threads, deep stacks, all waiting for ever.

``python rank_program.py THREADS``; its rank comes from the environment, as a launcher would set it.
"""

import sys
import threading

DEPTH = 20
"""With Python's own frames about 25 a thread."""


def wait_below(depth: int, never: threading.Event) -> None:
    if depth:
        wait_below(depth - 1, never)
    never.wait()


def main() -> None:
    never = threading.Event()
    for number in range(int(sys.argv[1]) - 1):
        threading.Thread(target=wait_below, args=(DEPTH, never), name=f"worker-{number}", daemon=True).start()
    print("ready", flush=True)
    wait_below(DEPTH, never)


if __name__ == "__main__":
    main()
