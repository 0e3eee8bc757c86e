"""`python -m unibus` is `unibus`, for when the script is not on the path."""

from unibus.cli.main import app

if __name__ == "__main__":
    app(prog_name="unibus")
