"""The scheduler and its pool of blocks, compiled: plain functions over one state of arrays."""
