"""TTFT, TPOT and throughput of a closed loop from any model of a step."""
