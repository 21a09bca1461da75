"""From pandas to arrays: stamps, observations, windows, checks.

Here indexes and frequencies become numbers, and steps of a horizon become stamps.
"""
