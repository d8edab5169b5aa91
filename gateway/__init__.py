"""Assay: a secure multi-provider inference gateway that says what really happened."""

__version__ = "0.1.0"
