"""From what a person has to a ``Step``: objects, ``train.py:step``, checkpoints, data files, a line of text.

Takes: objects, texts, paths.
Gives: ``Step`` (a callable that runs one forward pass and returns the loss, and its model), or a ``GradkitError``.
Builds models and batches, tries a proposed batch on its model, and never runs the step.
"""

from gradkit.load.step import Step as Step
from gradkit.load.step import from_objects as from_objects
from gradkit.load.step import from_spec as from_spec
from gradkit.load.step import from_step as from_step
