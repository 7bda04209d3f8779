"""From the records of a run to findings: what cuts, what a rerun shows, which cause it has, which line.

Takes: a ``Step`` and options.
Gives: ``Diagnosis``: findings, parameters, and the records that a picture is made from.
``facts`` reads records and the model; ``experiments`` run the step again with one thing changed; ``rules`` name causes
from ``Evidence`` alone. ``python -m gradkit.diagnosis train.py:step`` prints what a diagnosis rests on.
"""
