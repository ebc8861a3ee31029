"""``python -m ladderholdout``: the command line, where its script is not on the path."""

from ladderholdout.cli import app

app(prog_name="python -m ladderholdout")
