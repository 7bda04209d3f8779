"""The step run again with one thing changed, to see whether the gradient comes back.

Takes: a step, a model, ``Preserved``, and what is to be changed.
Gives: frozen answers; everything is put back, and whatever the changed step raises, the first run stands.
"""
