"""A program as it runs: the step that failed, or that trains nothing, run again from the frames that made it.

Takes: an exception, or the running frames and an optimizer.
Gives: ``Explanation``: a ``Report`` with its ``Origin`` (which lines were run again, and how true that was).
The program goes on as it would have without it: it is never worse off.
"""
