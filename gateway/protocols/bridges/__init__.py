"""Bridges between dialects: pure functions from JSON to JSON, with chat completions as the middle."""
