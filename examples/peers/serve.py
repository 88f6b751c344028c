"""Serve a toy model like an OpenAI-compatible server, on this machine alone: `python serve.py`."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock

from hacrl.agents.policy import Policy
from hacrl.recipe.settings import SamplingSettings
from hacrl.tasks.toy_models import models as toy_models
from hacrl.types import Prompt

PORT = 8017


def make_server(model: str = "complementary-b", port: int = PORT) -> ThreadingHTTPServer:
    """A server that is not running yet."""
    policy, one_at_a_time = Policy.load("teacher", toy_models.build(model)), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = Prompt("prompt", body["messages"][-1]["content"])
            sampling = SamplingSettings(max_new_tokens=body["max_tokens"], temperature=body["temperature"])
            with one_at_a_time:
                (drawn,) = policy.sample([prompt], 1, sampling, body["seed"])
            tokens = zip(drawn.token_ids, drawn.token_logps, strict=True)
            choice = {
                "message": {"role": "assistant", "content": drawn.text},
                "finish_reason": drawn.finish_reason,
                "logprobs": {
                    "content": [
                        {"token": policy.encoder.decode_response([token]), "logprob": logp}
                        for token, logp in tokens
                    ]
                },
            }
            usage = {
                "prompt_tokens": len(policy.encoder.encode_prompt(prompt)),
                "completion_tokens": len(drawn.token_ids),
            }
            reply = json.dumps({"choices": [choice], "usage": usage}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, *arguments: object) -> None:
            """Nothing."""

    return ThreadingHTTPServer(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    make_server().serve_forever()
