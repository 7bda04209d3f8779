"""Run a step once and listen: every torch call, every switch of grad mode, every backward.

Takes: a step, a model, ``Preserved``.
Gives: ``Trace``, ``AutogradGraph``, ``Reached``: frozen records, no tensors.
All patches of torch and Python that last as long as a run are made here, and only here.
"""
