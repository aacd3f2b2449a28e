"""Formats of traffic uploads. A format is one module here and a line in the registry."""
