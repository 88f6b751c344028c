"""A Ray cluster of several nodes on this machine, in a process of its own.

Run as a script it prints the head's address, then reads commands from standard input and acknowledges each
with a line: `remove ID` kills the node with that id, `head` kills the head. End of input ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class Nodes:
    """A head with one CPU, and further nodes with one CPU each."""

    def __init__(self, others: int, token: str, folder: Path) -> None:
        environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": token,
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # the loopback interface only
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",  # Ray's 15 would give everything else priority over the agents
        }
        self._log = folder / "nodes.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(others)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | environment,
            )
        self.address = self._read_line()

    def remove(self, node: str) -> None:
        """Kill everything that runs on a node."""
        self._send(f"remove {node}")

    def kill_head(self) -> None:
        """Kill the head."""
        self._send("head")

    def close(self) -> None:
        """End all that is left."""
        self._process.communicate()

    def _send(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._read_line()

    def _read_line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the process with the nodes has died: {self._log.read_text()[-2000:]}"
        return line


def main(others: int) -> None:
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = {node.node_id: node for node in [cluster.add_node(num_cpus=1) for _ in range(others)]}
    print(cluster.address, flush=True)
    for line in sys.stdin:
        command, *arguments = line.split()
        node = cluster.head_node if command == "head" else nodes[arguments[0]]
        cluster.remove_node(node, allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
