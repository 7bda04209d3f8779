"""Places in source code that may stop a gradient, and what a diagnosis says of each.

Takes: files, a ``Report``.
Gives: ``Site``, ``Judgement``, ``Scan``, GitHub annotations, SARIF.
"""
