"""What all rooms speak: frozen records, one error class, sentences by key, and tools that know of no diagnosis.

Takes: nothing from any other room.
Gives: records (``Finding``, ``Location``, ``Picture``; ``Trace`` and its parts), ``GradkitError``, ``words(key)``, the
registry of causes, and tools for files, terminals, other people's objects, and what is patched while a run lasts.
Never runs a user's step, reads no source, keeps no tensor.
"""
