"""From records to a drawing: which nodes, how they fold, what they say, DOT, SVG and PNG.

Takes: a ``Trace``, an ``AutogradGraph``, the ``Verdict`` and the findings.
Gives: ``Picture``; of a picture DOT, SVG, PNG and the cards of a viewer; and torchviz's drawing of the same run.
"""
