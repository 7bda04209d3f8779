"""Names for what was found: functions from ``Evidence`` to ``Finding``, in one module for each subject. Nothing is run.

Takes: ``Evidence``.
Gives: ``Finding`` and ``Harmless`` records.
What cuts is in ``cut_lines``, what can be read off the model in ``setup``, what took no part in the loss in
``unconnected``, what autograd raised in ``errors``, gradients that are zero or dropped, and hooks, in ``gradients``,
and the loss itself in ``loss``.
"""
