"""Parsing: dependency trees of sentences, from a network in which words and trees inform each other."""
