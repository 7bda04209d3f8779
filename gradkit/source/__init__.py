"""The user's source code, read and never run: which line is running, which line set something up.

Takes: code objects and offsets in them (``Point``), files, names of attributes and parameters.
Gives: ``Location``, ``Text``, and whose fault an exception is. What was found by reading alone is a guess: where
several lines fit, the answer is None.
A line is named from source as it was when the code that ran was imported (``imported``).
"""
