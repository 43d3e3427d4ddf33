"""Every claim of the textbook as an experiment, a file each (`clearhead explain`)."""
