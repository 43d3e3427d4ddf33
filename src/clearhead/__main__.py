"""`python -m clearhead` is the command `clearhead`."""

from clearhead.cli.app import main

if __name__ == "__main__":
    main()
