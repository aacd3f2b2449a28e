"""Prefix reuse: block chains, hit curves over the cache's size, families of prompts."""
