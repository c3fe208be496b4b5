"""`python -m counterveil` is the command `counterveil`."""

from counterveil.cli import main

if __name__ == "__main__":
    main()
