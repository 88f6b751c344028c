"""How likely a learner finds answers: its own words from when it drew them, or as it is now."""

import torch

from hacrl.agents.rendering import Rendering
from hacrl.sharing import Learner, Reencoder, arrange
from hacrl.training.likelihood import likelihood
from hacrl.types import Prompt
from helpers_sharing import char_level, trajectory

ENCODER = Rendering(char_level())


class Scoring:
    """An agent to which every token is as likely as its id says."""

    name = "a"

    def score(self, rows):
        return [tuple(-float(token) for token in response) for _, response in rows]


def test_own_answers_have_their_log_probs_until_the_learner_changes():
    own = trajectory("a", "p", token_ids=(4, 6), token_logps=(-0.25, -0.75))
    peers = [trajectory("b", "p", n, text=text) for n, text in enumerate(("12", "12", "π"))]
    table = arrange(1, [own, *peers], ["a", "b"], ["p"])
    tokens = Reencoder(Learner("a", ENCODER), {"p": Prompt("p", "?")})
    chosen = table.mask.clone()
    chosen[1, 0, 0] = False
    before, after = (likelihood(Scoring(), tokens, table, chosen, changed=late) for late in (False, True))
    written = (*ENCODER.encode_response("12"), ENCODER.eos_id)
    assert (before[0, 0, 0], after[0, 0, 0]) == (-0.5, -5.0)
    assert before[1, 0, 1] == after[1, 0, 1] == -sum(written) / len(written)
    # Not chosen, or not to be written in the learner's tokens.
    assert before.isnan().equal(torch.tensor([[[False, True, True]], [[True, False, True]]]))
