"""Which head does what in a pretrained model of Hugging Face: recorded as it runs, unmodified, and saved for another machine.

Run it: python examples/inside_a_model.py   (needs pip install "overt[text]")
"""

import tempfile
from pathlib import Path

from transformers import AutoTokenizer, BertModel

from overt import lens
from overt.explain import text_model

sentence = "The animal did not cross the street because it was too tired."

# all-MiniLM-L6-v2, from its package: transformers' own BertModel.
folder = text_model.packaged_folder()
model, tokenizer = BertModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
inputs = tokenizer(sentence, return_tensors="pt")
tokens = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])

with lens.record(model, key_tokens=tokens) as recording:
    model(**inputs)
print(recording)
print(f"recomputed vs. model: {recording.verify().difference:.1e}")

# What each head does, by the plain pattern that takes most of its weight.
for role in sorted(recording.roles(), key=lambda role: -role.score)[:8]:
    print(role)

# Which word "it" attends to most, in the head where that is "animal" most.
word, animal = tokens.index("it"), tokens.index("animal")
best = max(recording.heads(), key=lambda head: float(head.weights(rows=word)[0, 0, animal]))
weights, keys = best.top(word, 3)
result = ", ".join(f"{tokens[key]} {weight:.2f}" for weight, key in zip(weights[0].tolist(), keys[0].tolist(), strict=True))
print(f"{best}: it → {result}")

# Made here, looked at elsewhere: a safetensors file, without the model and without pickle.
path = Path(tempfile.mkdtemp()) / "animal.safetensors"
recording.save(path)
print(
    f"{path.stat().st_size / 1e6:.1f} MB; equal when read back: {lens.load(path)[best.layer, best.head].weights().equal(best.weights())}"
)
