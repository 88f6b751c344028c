"""`python -m hacrl`."""

from hacrl.cli import main

main()
