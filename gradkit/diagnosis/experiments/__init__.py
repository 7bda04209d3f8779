"""The step run again with one thing changed, to see whether the gradient comes back.

Takes: what is ``Known``, and a ``Lab``: the ``Session`` that runs the step again, and the tensors that are still alive.
Gives: ``Shown``, one frozen answer for each experiment of ``plan.EXPERIMENTS``.
Everything is put back after each, and whatever the changed step raises, the first run stands.
"""
