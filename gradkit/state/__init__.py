"""Live Python objects around a step: what it can reach, what holds what, and everything put back as it was.

Takes: a step and a model.
Gives: ``Preserved`` (a context manager), the models, optimizers and files that a callable uses, the edges by which a
thing is held.
Never decides anything about gradients.
"""
