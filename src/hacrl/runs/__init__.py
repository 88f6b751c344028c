"""The files of a run: its directory, checkpoints and logs, safe against kills and full disks."""
