"""A recommendation as a document: one content, written as HTML or as Markdown."""
