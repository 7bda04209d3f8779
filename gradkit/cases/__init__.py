"""Built-in examples: whole programs, written the way that people write theirs."""
