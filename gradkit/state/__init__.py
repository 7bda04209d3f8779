"""Live Python objects around a step: what it can reach, what holds what, and everything put back as it was.

Takes: a step and a model.
Gives: ``Preserved`` (a context manager); the models, optimizers and files that a function uses; what modules have
registered; the ways (of ``Edge``) by which a step comes to a thing.
Never decides anything about gradients.
"""
