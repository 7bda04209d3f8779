"""The words that all rooms use: frozen records, torch's names for its functions, errors, sentences.

Takes: nothing.
Gives: records (``Finding``, ``Location``, ``Picture``, ``Trace`` and its parts), ``GradkitError``, ``words(key)``.
Never runs a user's code, reads no source, keeps no tensor.
"""
