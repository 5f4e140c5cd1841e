"""The cause rules, in the order in which they are asked: the first that explains the root is the cause."""

from __future__ import annotations

from . import (
    checkpoint_fs_blocked,
    collective_order_mismatch,
    cross_pg_order_deadlock,
    dataloader_worker_stuck,
    deepspeed_zero_offload_memory,
    device_side_wedge,
    file_lock_stuck,
    fork_with_threads_deadlock,
    gil_lock_inversion,
    gpu_lost_xid79,
    gpu_or_driver_stuck,
    host_memory_limit,
    lock_order_inversion,
    network_or_device_stall,
    oom_killed_rank,
    pp_p2p_order_cycle,
    rank_died_peers_wait,
    rank_killed,
    rank_local_condition_divergence,
    rank_never_started,
    rank_skips_collective,
    rank_spinning,
    rank_stopped,
    slow_not_stuck,
    store_wait_missing_rank,
    thread_blocked_in_kernel,
)
from .interface import Context, Explanation, Rule

RULES: tuple[Rule, ...] = (
    rank_stopped.RULE,
    oom_killed_rank.RULE,
    rank_killed.RULE,
    rank_died_peers_wait.RULE,
    rank_never_started.RULE,
    deepspeed_zero_offload_memory.RULE,
    host_memory_limit.RULE,
    checkpoint_fs_blocked.RULE,
    gpu_lost_xid79.RULE,
    gpu_or_driver_stuck.RULE,
    device_side_wedge.RULE,
    network_or_device_stall.RULE,
    file_lock_stuck.RULE,
    fork_with_threads_deadlock.RULE,
    dataloader_worker_stuck.RULE,
    thread_blocked_in_kernel.RULE,
    rank_spinning.RULE,
    store_wait_missing_rank.RULE,
    lock_order_inversion.RULE,
    gil_lock_inversion.RULE,
    cross_pg_order_deadlock.RULE,
    pp_p2p_order_cycle.RULE,
    collective_order_mismatch.RULE,
    rank_skips_collective.RULE,
    rank_local_condition_divergence.RULE,
    slow_not_stuck.RULE,
)


def explain(context: Context) -> tuple[str | None, Explanation | None]:
    """Returns (cause id, explanation) of the first rule that fits, or (None, None): a root needs no cause."""
    for rule in RULES:
        if context.decision.kind in rule.kinds:
            explanation = rule.explain(context)
            if explanation is not None:
                return rule.id, explanation
    return None, None


__all__ = ["RULES", "Context", "Explanation", "Rule", "explain"]
