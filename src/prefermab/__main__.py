"""`python -m prefermab`."""

from prefermab.cli import main

if __name__ == "__main__":
    main()
