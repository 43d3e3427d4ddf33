"""Whole models, made of the parts."""
