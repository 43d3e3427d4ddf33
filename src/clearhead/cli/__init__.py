"""The command `clearhead`: one thin file per command, each importing what it needs when it runs."""
