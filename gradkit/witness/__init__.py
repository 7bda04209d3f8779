"""What was done to a program's parameters while it was set up, seen when it happened.

Takes: nothing; it listens while it is open.
Gives: ``Deed`` records by parameter: created, registered, replaced, written, frozen, thawed, held by an optimizer, each
with the user's frames. Nothing is kept alive, and nothing is changed.
"""
