"""The calls of `api.client.Client`, by noun; the client is all of them over one connection."""
