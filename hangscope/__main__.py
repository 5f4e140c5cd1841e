"""The way in: ``hangscope`` and ``python -m hangscope``.

Parsed by any Python since 2.7, so that one that is too old gets a line of text and no traceback.
"""

import sys

OLDEST = (3, 10)


def offer_itself():
    # type: () -> None
    """Before anything is imported: in the job's own memory cgroup, at its limit, the kernel must take this
    process and not a rank."""
    try:
        with open("/proc/self/oom_score_adj", "w") as adjustment:
            adjustment.write("1000")
    except OSError:
        pass  # the capture notes it when it tries again


def main(argv=None):
    # type: (list[str] | None) -> int
    """Runs the command line and returns its exit status (see README, Exit status)."""
    if sys.version_info < OLDEST:
        this = ".".join(str(part) for part in sys.version_info[:2])
        sys.stderr.write(
            "hangscope needs Python 3.10 or newer; " + sys.executable + " is Python " + this + "\n"
        )
        return 1
    if argv is None and "capture" in sys.argv:
        offer_itself()
    from hangscope.cli.main import main as command_line

    return command_line(sys.argv[1:] if argv is None else argv, own_process=argv is None)


if __name__ == "__main__":
    sys.exit(main())
