"""What one client does, the data it leaves, the arithmetic on it, and grading. Knows neither Ray nor `cluster`."""

from importlib.metadata import version

__version__ = version("loadgen")
