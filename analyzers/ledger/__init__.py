"""Loose evidence of many ranks, set side by side: who has joined which operation, who has not, and why."""
