"""From a step to findings: what cuts the gradient, what a rerun shows, which cause it has, which line.

Takes: a ``Step`` and ``Options``.
Gives: ``Diagnosis``: the findings, and the ``Evidence`` that they rest on, as records.
``preconditions`` says what is refused. ``facts`` are made of the first run and the model; ``experiments`` run the step
again with one thing changed; ``rules`` name causes from ``Evidence`` alone, in the order that ``rule_order`` has.
``python -m gradkit.diagnosis train.py:step`` prints what a diagnosis rests on.
"""
