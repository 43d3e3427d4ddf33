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

// Keys and values, (sentence, key head, entry, width), and which of them a hypothesis may see; no mask: all.
struct Entries {
    float *keys, *values;
    const uint8_t* mask;
    int64_t count, sentence_stride, head_stride, entry_stride, mask_sentence_stride, mask_beam_stride;
};

// Which hypotheses of the grid (sentences, beams) have rows: row i is that at places[i]; no places: all.
struct Rows {
    const int64_t* places;
    int64_t count, sentences, beams;
    int64_t place(int64_t row) const { return places ? places[row] : row; }
};

// Equation 1 for one head: `count` keys and values, each `places[n]` floats behind the first. `weights` has room for them,
// and a vector more.
template <int VECTORS>
void attend_head(const float* query, const float* keys, const float* values, const int64_t* places, int64_t count,
                 float* weights, float* out) {
    const float scale = 1 / std::sqrt(float(VECTORS * LANES));
    vector q[VECTORS], sums[VECTORS] = {}, most = vector{} - std::numeric_limits<float>::infinity(), total = {};
    for (int v = 0; v < VECTORS; ++v) q[v] = load(query + v * LANES) * scale;
    for (int64_t n = 0; n < count; ++n) {
        vector products = {};
        for (int v = 0; v < VECTORS; ++v) products += q[v] * load(keys + places[n] + v * LANES);
        weights[n] = sum(products);
    }
    store(weights + count, most);  // that weighs nothing
    for (int64_t n = 0; n < count; n += LANES) most = load(weights + n) > most ? load(weights + n) : most;
    const float highest = largest(most);
    for (int64_t n = 0; n < count; n += LANES) {
        const vector e = exponential(load(weights + n) - highest);
        store(weights + n, e);
        total += e;
    }
    for (int64_t n = 0; n < count; ++n)
        for (int v = 0; v < VECTORS; ++v) sums[v] += weights[n] * load(values + places[n] + v * LANES);
    const float all = sum(total);
    for (int v = 0; v < VECTORS; ++v) store(out + v * LANES, count ? sums[v] / all : sums[v]);
}

// The same for any width.
inline void attend_head(const float* query, const float* keys, const float* values, const int64_t* places, int64_t count,
                        float* weights, float* out, int64_t width) {
    float most = -std::numeric_limits<float>::infinity(), total = 0;
    for (int64_t n = 0; n < count; ++n) {
        float dot = 0;
        for (int64_t i = 0; i < width; ++i) dot += query[i] * keys[places[n] + i];
        weights[n] = dot / std::sqrt(float(width));
        most = std::max(most, weights[n]);
    }
    std::fill(out, out + width, 0.0f);
    for (int64_t n = 0; n < count; ++n) total += weights[n] = std::exp(weights[n] - most);
    for (int64_t n = 0; n < count; ++n)
        for (int64_t i = 0; i < width; ++i) out[i] += weights[n] / total * values[places[n] + i];
}

// All heads of one hypothesis, joined; `out` may be the query. One that may look at nothing gets zeros.
inline void attend(const Heads& shape, const float* query, const Entries& entries, int64_t sentence, int64_t beam,
                   float* out) {
    thread_local std::vector<int64_t> memory_of_places;
    thread_local std::vector<float> memory_of_weights;
    memory_of_places.resize(std::max<size_t>(memory_of_places.size(), entries.count));
    memory_of_weights.resize(std::max<size_t>(memory_of_weights.size(), entries.count + LANES));
    int64_t* const places = memory_of_places.data();  // a thread's own memory is slow to find: once is enough
    float* const weights = memory_of_weights.data();
    const uint8_t* allowed =
        entries.mask + sentence * entries.mask_sentence_stride + beam * entries.mask_beam_stride;
    int64_t seen = 0;
    for (int64_t n = 0; n < entries.count; ++n)
        if (!entries.mask || allowed[n]) places[seen++] = sentence * entries.sentence_stride + n * entries.entry_stride;
    const int64_t group = shape.heads / shape.key_heads, width = shape.width, vectors = width / LANES;
    for (int64_t h = 0; h < shape.heads; ++h, query += width, out += width) {
        const int64_t head = h / group * entries.head_stride;
        const float *const keys = entries.keys + head, *const values = entries.values + head;
        if (width % LANES || vectors > 8) attend_head(query, keys, values, places, seen, weights, out, width);
        else as_constant<8>(vectors, [&](auto count) {
            attend_head<count>(query, keys, values, places, seen, weights, out);
        });
    }
}

}  // namespace
