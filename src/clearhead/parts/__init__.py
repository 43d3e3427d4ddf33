"""The parts of the paper, a file each."""
