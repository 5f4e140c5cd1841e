"""The frozen values that flow between the stages: evidence → facts → waits → graph → verdict."""
