"""The simulator of the scheduler."""
