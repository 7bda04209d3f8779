"""One function for each cause: from ``Evidence`` to ``Finding``; no torch, no run.

Takes: ``Evidence``.
Gives: ``Finding`` and ``Harmless`` records.
"""
