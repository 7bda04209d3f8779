"""What can be told without another run.

Takes: a ``Trace``, a model, optimizers.
Gives: ``Verdict`` (the cuts), the parameter table, adapters, what optimizers do not hold.
"""
