// Attention of a single query to the entries of a cache.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vectors.h"

namespace {

// Heads as wide as each other, those of queries in groups that share a head of keys and values.
struct Heads {
    int64_t heads, key_heads, width;
};

// Keys and values, (sentence, entry, key head, width), and which of them a hypothesis may see; no mask: all.
struct Entries {
    float *keys, *values;
    const uint8_t* mask;
    int64_t count, sentence_stride, entry_stride, mask_sentence_stride, mask_beam_stride;
};

// Which hypotheses of the grid (sentences, beams) have rows: row i is that at places[i]; no places: all.
struct Rows {
    const int64_t* places;
    int64_t count, sentences, beams;
    int64_t place(int64_t row) const { return places ? places[row] : row; }
};

// Equation 1 for one hypothesis, all heads joined; `out` may be the query. One that may look at nothing gets zeros.
inline void attend(const Heads& shape, const float* query, const Entries& entries, int64_t sentence, int64_t beam,
                   float* out) {
    thread_local std::vector<int64_t> seen;
    thread_local std::vector<float> weights, most, total;  // weights: (entry seen, head)
    const int64_t heads = shape.heads, width = shape.width, group = heads / shape.key_heads;
    const int64_t whole = width / LANES * LANES;
    const float scale = 1 / std::sqrt(float(width));
    seen.clear();
    const uint8_t* allowed =
        entries.mask + sentence * entries.mask_sentence_stride + beam * entries.mask_beam_stride;
    for (int64_t n = 0; n < entries.count; ++n)
        if (!entries.mask || allowed[n]) seen.push_back(sentence * entries.sentence_stride + n * entries.entry_stride);
    const int64_t scores = seen.size() * heads;
    weights.resize(std::max<size_t>(weights.size(), scores + LANES));
    most.assign(heads, -std::numeric_limits<float>::infinity());
    total.assign(heads, 0.0f);

    float* weight = weights.data();
    for (const int64_t entry : seen)
        for (int64_t h = 0; h < heads; ++h, ++weight) {
            const float *a = query + h * width, *b = entries.keys + entry + h / group * width;
            vector products = {};
            for (int64_t i = 0; i < whole; i += LANES) products += load(a + i) * load(b + i);
            float dot = sum(products);
            for (int64_t i = whole; i < width; ++i) dot += a[i] * b[i];
            *weight = dot * scale;
            most[h] = std::max(most[h], *weight);
        }
    weight = weights.data();
    for (size_t n = 0; n < seen.size(); ++n)
        for (int64_t h = 0; h < heads; ++h) *weight++ -= most[h];
    for (int64_t i = 0; i < scores; i += LANES) store(&weights[i], exponential(load(&weights[i])));
    weight = weights.data();
    for (size_t n = 0; n < seen.size(); ++n)
        for (int64_t h = 0; h < heads; ++h) total[h] += *weight++;

    std::fill(out, out + heads * width, 0.0f);
    weight = weights.data();
    for (const int64_t entry : seen)
        for (int64_t h = 0; h < heads; ++h) {
            const float share = *weight++ / total[h], *b = entries.values + entry + h / group * width;
            float* const c = out + h * width;
            for (int64_t i = 0; i < whole; i += LANES) store(c + i, load(c + i) + share * load(b + i));
            for (int64_t i = whole; i < width; ++i) c[i] += share * b[i];
        }
}

}  // namespace
