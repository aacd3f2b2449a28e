"""Base units are seconds, bytes, FLOP and tokens; other units exist only where a person reads."""

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
GB = 10**9
MILLISECONDS_PER_S = 1e3
MINUTES_FROM_S = 120


def bytes_text(value_bytes: float) -> str:
    """Bytes for a person, in GiB, MiB or KiB: ``bytes_text(3 << 30) == "3.00 GiB"``."""
    for size, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value_bytes) >= size:
            return f"{value_bytes / size:.2f} {name}"
    return f"{value_bytes:.0f} B"


def seconds_text(value_s: float) -> str:
    """A duration for a person: milliseconds below one second, minutes above two."""
    if abs(value_s) < 1:
        return f"{value_s * MILLISECONDS_PER_S:.1f} ms"
    if abs(value_s) < MINUTES_FROM_S:
        return f"{value_s:.2f} s"
    minutes, seconds = divmod(round(value_s), 60)
    return f"{minutes} min {seconds:02d} s"


def percent_text(ratio: float) -> str:
    """A ratio as a signed change: ``percent_text(1.21) == "+21.0 %"``."""
    return f"{(ratio - 1) * 100:+.1f} %"
