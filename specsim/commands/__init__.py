"""One sub-command a file; each holds a click command named ``command``.  ``_name.py``: shared."""
