"""The three questions that a program can ask: ``diagnose``, ``verify``, ``scan``.

Takes: what ``load`` takes.
Gives: ``Report``, ``Verification``, ``Scan``.
"""
