"""Classes of requests: found where a file names none, and described in words."""
