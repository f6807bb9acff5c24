"""``python -m kraftfast`` is the ``kraftfast`` program."""

from kraftfast.cli import main

if __name__ == "__main__":
    main()
