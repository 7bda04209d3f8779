"""Guides, claims, notebooks and the workshop: what is taught, and the programs that prove it.

Takes: its folders ``guides``, ``claims`` and ``books``, the programs of ``gradkit.cases``; a learner's answer.
Gives: ``Guide``, ``Claim``, notebooks in both languages, a ``Step`` of each built-in example, the ``Verdict`` on an
answer.
"""
