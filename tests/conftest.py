"""Settings for all tests."""

import os

# One thread per process: several test processes share the machine, and results stay reproducible.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Nothing may be downloaded: code that would is tested on local directories.
os.environ["HF_HUB_OFFLINE"] = "1"
