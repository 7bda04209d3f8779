"""The panel, the quiz and the viewer: widgets over everything below, and ``gradkit lab``.

Takes: what a person chooses on screen.
Gives: ``Panel``, ``Quiz``, ``GraphView`` and their parts; JupyterLab, opened at the start notebook.
Only the doors import from here.
"""
