"""How many tokens a second a language model adds: Clearhead beside transformers' `generate`, with the same weights.

SmolLM2-135M in float32, greedy, `TOKENS` new tokens for one prompt and for eight of different lengths. `generate` runs
with those of its own settings that suit it best. First the tokens of both are compared. Then the same in int16.

At batch 1 a token needs every weight once, and hardly anything twice. So besides the rate there is the share of what
the machine's memory could give: bytes of weights for a token, over the rate at which sums of large arrays are read.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from benchmarks.harness import OURS, THREADS, Row, run_script, seconds_of, take_turns, throughput_rows
from benchmarks.published import exported, imported, smollm2_file, transformers
from clearhead.decoding.generation import generate
from clearhead.decoding.generation_options import GenerationOptions
from clearhead.decoding.generator import TextGenerator
from clearhead.decoding.loading import load_generator
from clearhead.models.gpt import GPT

PEER = "transformers (LLaMA)"
INT16 = "clearhead, int16"
TOKENS = 128
PROMPTS = (
    "The history of the printing press begins",
    "Once upon a time there was a king",
    "def fibonacci(n):",
    "Water boils at a lower temperature on a mountain, because",
    "The three most important inventions of the nineteenth century were",
    "A recipe for bread: take flour, water, salt and",
    "In the middle of the night she heard",
    "Dear Sir or Madam, I am writing to you about",
)
SETTINGS: dict[str, dict[str, str]] = {
    "sdpa": {"attention": "sdpa"},
    "sdpa, static cache": {"attention": "sdpa", "cache_implementation": "static"},
    "eager": {"attention": "eager"},
}
"""Tried for `generate`, on a quarter of the tokens."""
ROUNDS = 7
MEMORY = 256 * 2**20
"""Bytes that are summed to see how fast memory is read: more than any cache holds."""


def ours(model: GPT, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    """Our tokens; no token ends a text."""
    options = GenerationOptions(max_new_tokens=tokens, batch_size=len(prompts))
    return [one.ids for one in generate(model, prompts, options)]


def theirs(model: Any, prompts: list[list[int]], tokens: int, *, attention: str, **settings: str) -> list[list[int]]:
    """transformers' tokens: prompts are padded on the left."""
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    if model.config._attn_implementation != attention:
        model.set_attn_implementation(attention)
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids, attention_mask=mask, do_sample=False, max_new_tokens=tokens, pad_token_id=0, **settings
        )
    return found[:, longest:].tolist()  # type: ignore[no-any-return]


def memory_rate() -> float:
    """Bytes a second that all threads read together, in the best of a few rounds."""
    numbers = torch.ones(MEMORY // 4)
    return MEMORY / min(seconds_of(numbers.sum) for _ in range(10))


def measure_batch(generator: TextGenerator, rounded: TextGenerator, peer: Any, size: int, *, quick: bool) -> list[Row]:
    """The rows of one batch size."""
    tokens = 16 if quick else TOKENS
    prompts = generator.tokenizer.encode_batch(PROMPTS[:size])
    trial = {
        name: seconds_of(partial(theirs, peer, prompts, max(8, tokens // 4), **settings))
        for name, settings in SETTINGS.items()
    }
    best = min(trial, key=lambda name: trial[name])
    print("  " + ", ".join(f"{name}: {seconds:.2f} s" for name, seconds in trial.items()))
    their_name = f"{PEER}, {best}"
    systems = {
        OURS: partial(ours, generator.model, prompts, tokens),
        their_name: partial(theirs, peer, prompts, tokens, **SETTINGS[best]),
        INT16: partial(ours, rounded.model, prompts, tokens),
    }
    exact, expected, nearly = (work() for work in systems.values())
    if exact != expected:
        raise RuntimeError("the two go on differently: nothing to compare")
    same = [one == other for one, other in zip(nearly, exact, strict=True)]
    print(f"  {size * tokens} tokens equal; in int16 {sum(same)} of {size} texts the same")
    seconds = take_turns(systems, rounds=1 if quick else ROUNDS)
    weights = sum(parameter.nbytes for parameter in generator.model.parameters())
    share = weights * tokens / memory_rate() if size == 1 else None  # seconds that memory alone would take
    work, amount = f"generation, SmolLM2-135M, batch {size}", size * tokens
    in_float32 = {name: seconds[name] for name in (OURS, their_name)}
    in_int16 = {OURS: seconds[INT16], f"{their_name}, float32": seconds[their_name]}
    return [
        *throughput_rows(work, in_float32, amount=amount, unit="tokens/s", share_of_peak=share),
        *throughput_rows(f"{work}, int16", in_int16, amount=amount, unit="tokens/s"),
    ]


def measure(quick: bool) -> list[Row]:
    torch.set_num_threads(THREADS)
    file = smollm2_file()
    if file is None:
        return []
    run = imported(file, "smollm2")
    generator, rounded = (load_generator(run.path, device="cpu", precision=name) for name in ("float32", "int16"))
    peer = transformers().AutoModelForCausalLM.from_pretrained(exported(run), dtype=torch.float32).eval()
    peer.generation_config.eos_token_id = None  # every text gets all of its tokens
    return [row for size in (1, 8) for row in measure_batch(generator, rounded, peer, size, quick=quick)]


if __name__ == "__main__":
    run_script(measure)
