"""Figures of lengths, arrivals and texts."""
