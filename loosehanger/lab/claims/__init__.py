"""Claims: what a lab promises, and whether a scenario can promise it."""
