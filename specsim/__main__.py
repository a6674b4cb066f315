"""``python -m specsim`` is the command ``specsim``."""

import sys


def main() -> None:
    """Run the command; an interrupt that comes while it is loaded ends it as any later one does."""
    try:
        from specsim.cli import main as run
    except KeyboardInterrupt:
        sys.stderr.write("specsim: interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
