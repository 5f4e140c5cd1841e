"""Captures a stuck job: starts the agent, holds its deadline, saves what it sends, asks for more."""
