"""`python -m ogspr` is the command `ogspr`."""

from ogspr.cli import main

if __name__ == "__main__":
    main()
