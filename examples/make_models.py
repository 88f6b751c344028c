"""Make the two small models that the recipes here use: a Llama and a Qwen3 with different tokenizers.

Replace them with your own: any directory written by `save_pretrained` works.
"""

import shutil

from hacrl.tasks.toy_models import models as toy_models

for name, base in {"ada": "model-llama", "bob": "model-qwen"}.items():
    shutil.copytree(toy_models.build(base), f"models/{name}", dirs_exist_ok=True)
    print(f"models/{name}")
