"""Put two small models where the recipes here expect them: a Llama and a Qwen3 with different tokenizers.

They stand in for your own: any directory that `save_pretrained` wrote will do.
"""

import shutil

from hacrl.tasks.toy_models import models as toy_models

for name, base in {"ada": "model-llama", "bob": "model-qwen"}.items():
    shutil.copytree(toy_models.build(base), f"models/{name}", dirs_exist_ok=True)
    print(f"models/{name}")
