"""Runs tests many times to find those that fail now and then: `python -m tests.repeat --help`."""
