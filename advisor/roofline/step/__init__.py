"""What one engine step computes, and how long it takes."""
