"""Small Transformers with one mistake each, made as people make them, and sound ones of several makes.

    clearhead doctor clearhead.doctor.mistakes.masks:no_causal_mask

`textbook.py` is a sound model with its training; each function of the other files returns it with one thing wrong. The
doctor has to name it: `make doctor-table` tries them all.
"""
