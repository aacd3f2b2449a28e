"""How the installed vLLM lays caches out, recorded."""
