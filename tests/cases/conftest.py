"""Programs, no tests: ``tests/test_cases.py`` runs them."""

collect_ignore_glob = ["*.py"]
