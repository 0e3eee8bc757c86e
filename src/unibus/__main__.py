"""`python -m unibus` runs the command `unibus`, for environments where the script is not on the path."""

from unibus.cli.main import app

if __name__ == "__main__":
    app(prog_name="unibus")
