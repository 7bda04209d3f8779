"""Places in source code that may stop a gradient, and what a diagnosis says of each.

Takes: source texts; for a step also its ``Report``, and the lines that ran.
Gives: ``Site``, ``Judgement``, ``Scan``, GitHub annotations, SARIF.
"""
