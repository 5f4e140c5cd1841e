"""The agent: takes one node's evidence in order, with deadlines, and streams it as a shard."""
