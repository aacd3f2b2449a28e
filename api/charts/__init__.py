"""Pictures of a recommendation: pure functions from its values to plotly figures.

The HTML report, the Markdown report (as tables) and the dashboard show the same ones.
"""
