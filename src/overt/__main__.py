"""`python -m overt` is the command `overt`."""

from overt.cli.main import app

if __name__ == "__main__":
    app(prog_name="overt")
