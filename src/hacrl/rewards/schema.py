"""The verifier `json_schema`: the response is JSON that follows a schema."""

from __future__ import annotations

import json
import re
from typing import Any

try:
    import jsonschema
except ImportError as error:
    raise ImportError("the verifier `json_schema` needs jsonschema: pip install 'hacrl[schema]'") from error

_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*?)```", re.DOTALL)


def verify(response: str, gold: Any) -> float:
    """1.0 when the last fenced block, or else the whole response, is JSON valid under the schema `gold`."""
    schema = json.loads(gold) if isinstance(gold, str) else gold
    validator = jsonschema.validators.validator_for(schema)
    validator.check_schema(schema)
    blocks = _FENCED.findall(response)
    try:
        document = json.loads(blocks[-1] if blocks else response)
    except (ValueError, RecursionError):
        return 0.0
    return float(validator(schema).is_valid(document))
