"""Exact limits and limits by bets of one fixed model, at any level. Pure functions.

Mechanisms and certificates rest on them: what a search does to a level is not known here.

>>> from ladderholdout.limits.trinomial import paired_limits
>>> round(paired_limits(90, 60, 1000, 0.025).low, 3)
0.006
"""
