"""Programs, no tests: ``tests/diagnosis/test_corpus.py`` runs them."""

collect_ignore_glob = ["*.py"]
