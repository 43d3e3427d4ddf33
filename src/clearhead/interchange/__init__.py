"""Models from elsewhere, and ours for elsewhere: one reversible table a family."""
