"""Files that survive kills and full disks: run directory, checkpoints."""
