"""The three questions that a program can ask: ``diagnose``, ``verify``, ``scan``.

Takes: what the room ``load`` takes; a scan also takes files.
Gives: ``Report``, ``Verification``, ``Scan``.
"""
