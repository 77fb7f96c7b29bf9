"""`python -m parkrr` and the command `parkrr`."""

import sys

MISSING = 8  # as in parkrr.cli.exit_codes, which needs more than this module may
INTERRUPTED = 130


def main() -> None:
    """Run the command line, or say what it needs."""
    try:
        from parkrr.cli.app import app  # noqa: PLC0415 - typer and rich are optional
    except ModuleNotFoundError as missing:
        if missing.name not in ("typer", "rich"):
            raise
        print("the command line needs typer and rich; pip install 'parkrr[cli]'", file=sys.stderr)
        sys.exit(MISSING)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    app()


if __name__ == "__main__":
    main()
