"""From records to a drawing: which nodes, how they fold, what they say, DOT, SVG and PNG.

Takes: ``Trace``, ``AutogradGraph``, findings.
Gives: ``Picture``, DOT, SVG, PNG, the cards of a viewer.
"""
