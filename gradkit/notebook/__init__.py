"""The panel, the quiz and the viewer: widgets over everything below, and ``gradkit lab``.

Takes: what a person chooses on screen.
Gives: widgets; nothing imports from here but the doors.
"""
