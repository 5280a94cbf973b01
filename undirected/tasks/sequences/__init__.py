"""Sequences: attention that fills in missing tokens."""
