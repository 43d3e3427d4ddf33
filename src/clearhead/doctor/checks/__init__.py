"""The checks, a file for each group."""
