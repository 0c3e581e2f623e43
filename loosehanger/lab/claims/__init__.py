"""Claims: what a lab promises, and the checks that a scenario can promise it."""
