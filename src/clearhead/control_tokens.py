"""The four token ids that no text can produce: the same in every vocabulary."""

PAD = 0
"""Fills short sentences of a batch up, on the right."""
BOS = 1
"""Starts the decoder's input."""
EOS = 2
"""Ends every source and every target."""
UNK = 3
"""Stands for a symbol that the vocabulary lacks."""
CONTROL_COUNT = 4
"""Text begins at this id."""
