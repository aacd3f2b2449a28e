"""How much of an upload's text is kept, and what stands in its place."""
