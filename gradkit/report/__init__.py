"""What was found, laid out: text, HTML, JSON, pictures, and the change on the user's own lines.

Takes: findings, parameters, a ``Picture``.
Gives: ``Report``; words are chosen when it is shown, so that a change of language runs nothing again.
"""

from gradkit.report.report import Report as Report
