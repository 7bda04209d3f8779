"""The user's source code, read and never run: which line is running, which line set something up.

Takes: code objects and instruction offsets (``Point``), file names, names of attributes and parameters.
Gives: ``Location``; every answer that was found by reading alone is a guess, and says so by being None where several
fit.
"""
