"""Seeing dead letters and bringing them back: what died where and why, one at a time or thousands by a filter."""
