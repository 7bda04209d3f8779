"""Guides, claims, notebooks and the workshop: what is taught, and the programs that hold it.

Takes: the folders ``guides``, ``claims`` and ``books``; a learner's answer.
Gives: ``Guide``, ``Claim``, notebooks in both languages, the verdict on an answer.
"""
