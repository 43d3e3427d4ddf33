"""The errors that are the user's to mend: each says what was found, where, and what to do.

The commands print them without a traceback and exit with code 2.
"""


class ClearheadError(Exception):
    """The base of every error Clearhead raises on purpose."""


class ConfigError(ClearheadError):
    """A recipe, an option or a model shape that can't be right."""


class DataError(ClearheadError):
    """A text file that can't be read as it is; the message names the file and the line."""


class RunError(ClearheadError):
    """A run folder or checkpoint that is missing, broken or of another make."""
