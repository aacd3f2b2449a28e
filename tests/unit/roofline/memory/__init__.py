"""Memory accounting."""
