"""hangscope: which rank started the hang, why, and what to do next.

This file stays empty but for the version: the agent imports it on Python 3.8 inside somebody
else's memory limit.
"""

__version__ = "0.1.0"
