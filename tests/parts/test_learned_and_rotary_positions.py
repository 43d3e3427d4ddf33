"""Learned and rotary positions against their formulas, and the order of Marian's sinusoids."""

import cmath
import math

import pytest
import torch

from clearhead.errors import ConfigError
from clearhead.parts.positions import HalvedPositionalEncoding, LearnedPositions, RotaryPositions, rotate


def test_marians_sinusoids_are_all_sines_then_all_cosines():
    added = HalvedPositionalEncoding(6, length=3)(torch.zeros(1, 11, 6))[0]
    for position in range(11):
        angles = [position / 10_000 ** (2 * i / 6) for i in range(3)]
        expected = torch.tensor([*map(math.sin, angles), *map(math.cos, angles)])
        torch.testing.assert_close(added[position], expected, rtol=1e-5, atol=1e-5)


def test_learned_positions_are_rows_of_a_table():
    positions, x = LearnedPositions(7, 5), torch.randn(3, 2, 5)
    assert torch.equal(positions(x, 4), x + positions.table[4:6])
    each = positions(x, torch.tensor([0, 5, 2]))
    assert torch.equal(each, x + torch.stack([positions.table[start : start + 2] for start in (0, 5, 2)]))


# case S3
def test_a_text_beyond_the_table_is_refused():
    positions = LearnedPositions(7, 5)
    positions(torch.zeros(1, 7, 5))
    for start in (1, torch.tensor([0, 1])):
        with pytest.raises(ConfigError, match="8 positions: this model has learned 7"):
            positions(torch.zeros(2, 7, 5), start)


def turned(x, position, base, width, divide=lambda i: 1.0):
    """Each pair of features as a complex number, times `e ** (i * angle)`."""
    half, out = width // 2, [0.0] * width
    for i in range(half):
        angle = position * base ** (-2 * i / width) / divide(i)
        number = complex(x[i], x[i + half]) * cmath.exp(1j * angle)
        out[i], out[i + half] = number.real, number.imag
    return out


@pytest.mark.parametrize("start", [0, 13, torch.tensor([2, 0, 7])])
def test_rotation_turns_pairs_by_their_position(start):
    x = torch.randn(3, 2, 5, 6)
    found = rotate(x, RotaryPositions(6, base=100.0)(5, start))
    for b in range(3):
        first = start if isinstance(start, int) else int(start[b])
        for t in range(5):
            expected = torch.tensor([turned(row.tolist(), first + t, 100.0, 6) for row in x[b, :, t]])
            torch.testing.assert_close(found[b, :, t], expected, rtol=1e-5, atol=1e-5)


def test_scores_depend_on_the_distance_alone():
    query, key = torch.randn(2, 1, 1, 1, 8, dtype=torch.float64)
    positions = RotaryPositions(8)

    def score(at, other):
        turn = [tuple(part.double() for part in positions(1, place)) for place in (at, other)]
        return float((rotate(query, turn[0]) * rotate(key, turn[1])).sum())

    assert score(9, 4) == pytest.approx(score(105, 100), abs=1e-4)
    assert score(9, 4) != pytest.approx(score(9, 5), abs=1e-4)


def test_linear_scaling_divides_every_angle():
    plain, scaled = RotaryPositions(8), RotaryPositions(8, scaling={"kind": "linear", "factor": 4.0})
    torch.testing.assert_close(scaled.frequency * 4, plain.frequency)


def test_the_scaling_of_llama_3_1():
    """By the wavelengths of the release's own text: short ones stay, long ones are divided, a ramp between."""
    base, width, factor, low, high, original = 500.0, 16, 8.0, 1.0, 4.0, 256
    numbers = {"factor": factor, "low_frequency_factor": low, "high_frequency_factor": high}
    scaling = {"kind": "llama3", **numbers, "original_positions": original}
    found = RotaryPositions(width, base=base, scaling=scaling).frequency.tolist()
    kinds = set()
    for i, frequency in enumerate(found):
        plain = base ** (-2 * i / width)
        wavelength = 2 * math.pi / plain
        if wavelength < original / high:
            kind, expected = "short", plain
        elif wavelength > original / low:
            kind, expected = "long", plain / factor
        else:
            smooth = (original / wavelength - low) / (high - low)
            kind, expected = "between", (1 - smooth) * plain / factor + smooth * plain
        kinds.add(kind)
        assert frequency == pytest.approx(expected, rel=1e-6)
    assert kinds == {"short", "long", "between"}
