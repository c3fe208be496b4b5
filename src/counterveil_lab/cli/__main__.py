"""`python -m counterveil_lab.cli`."""

from counterveil_lab.cli import main

if __name__ == "__main__":
    main()
