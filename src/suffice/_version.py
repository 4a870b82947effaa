"""The version; the distribution's own is made from it."""

VERSION = "0.1.0"
