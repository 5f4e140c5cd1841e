"""Pure functions from evidence to a verdict: readers, waits, graph, solve, causes."""
