"""`python -m counterveil.cli` is the command `counterveil`."""

from counterveil.cli import main

main()
