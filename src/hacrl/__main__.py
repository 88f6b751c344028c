"""`python -m hacrl`."""

import os
import sys

if not sys.flags.safe_path and sys.path[0] == os.getcwd():
    del sys.path[0]  # `python -m` puts the working directory first: what lies there must not be imported

from hacrl.cli import main  # only now

main()
