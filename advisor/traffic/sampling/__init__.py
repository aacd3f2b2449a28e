"""Parts of an upload that stand for it, and traffic derived from it."""
