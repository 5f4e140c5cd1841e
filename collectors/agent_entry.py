"""Starts the agent in a bare interpreter: ``python -I -S -B <here>/agent_entry.py ARGUMENTS``.

The package is loaded from where this file stands, without touching ``sys.path``: nothing else that lies
beside it (a training repository's own ``collectors``, say) becomes importable. Python >= 3.8.
"""

import importlib.util
import os
import sys


def load_package() -> None:
    """Makes ``hangscope`` importable from the folder above this one, as a package of that name."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    spec = importlib.util.spec_from_file_location(
        "hangscope", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"no hangscope package in {folder}")
    package = importlib.util.module_from_spec(spec)
    sys.modules["hangscope"] = package
    spec.loader.exec_module(package)


if __name__ == "__main__":
    try:
        with open("/proc/self/oom_score_adj", "w") as adjustment:
            adjustment.write("1000")
    except OSError:
        pass  # the agent tries again, and notes it: here there is nothing to note it in yet
    load_package()
    from hangscope.collectors.agent import run as agent

    sys.exit(agent.main(sys.argv[1:]))
