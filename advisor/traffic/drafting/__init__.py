"""Drafts replayed on recorded outputs: n-gram look-up and look-up over past outputs."""
