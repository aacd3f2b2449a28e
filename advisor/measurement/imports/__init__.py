"""Results of other load clients as measurements of lower rank."""

from advisor.measurement.imports.reading import TOOLS, Tool, read_result

__all__ = ["TOOLS", "Tool", "read_result"]
