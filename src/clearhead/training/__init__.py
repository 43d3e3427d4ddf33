"""Training: the loss, the schedules, the loop, and what makes a stopped run go on exactly where it was."""
