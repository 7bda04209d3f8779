"""Run a step once and listen: every torch call, every switch of grad mode, every backward.

Takes: a step, a model, ``Preserved``, and any number of ``Intervention``, each of which changes or watches one thing.
Gives: ``Trace``, ``AutogradGraph`` and ``Reached``, together a ``Run``: frozen records, no tensors.
Whatever is patched in torch or Python in order to hear a run is patched here, and goes with the run.
"""
