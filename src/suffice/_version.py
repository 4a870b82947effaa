"""The version, read from the installed distribution."""

from importlib.metadata import version

VERSION = version("suffice")
