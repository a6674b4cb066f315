"""``python -m specsim`` is the command ``specsim``."""

from specsim.cli import main

main()
