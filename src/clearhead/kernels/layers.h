// A layer of the encoder or of a decoder (parts/layers.py, parts/decoder_only.py), sublayer by sublayer.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "attention.h"
#include "products.h"
#include "vectors.h"

namespace {

struct Norm {
    const float *gamma, *beta;  // no beta: RMSNorm, which takes no mean away
    float epsilon;
};

enum Activation { RELU, GELU, GELU_TANH, SILU };

struct Layer {
    Heads shape;
    Matrix query, key, value, self_output;
    Matrix cross_query, cross_output;  // of no columns: there is no source
    Matrix inner, gate, outer;         // of no columns: no gate
    Norm norms[3];
    int activation, pre_norm;
};

struct Angles {
    const float *cosine, *sine;  // (rows, width), rows `stride` apart; null: positions don't turn
    int64_t stride;
};

inline void normalize(const Norm& norm, const float* x, float* out, int64_t features) {
    const int64_t whole = features / LANES * LANES, rest = features - whole;
    vector total = {}, squares = {};
    if (norm.beta) {
        for (int64_t i = 0; i < whole; i += LANES) total += load(x + i);
        if (rest) total += load_some(x + whole, rest);
    }
    const float mean = sum(total) / features;
    for (int64_t i = 0; i < whole; i += LANES) squares += (load(x + i) - mean) * (load(x + i) - mean);
    float variance = sum(squares);
    for (int64_t i = whole; i < features; ++i) variance += (x[i] - mean) * (x[i] - mean);
    const float scale = 1 / std::sqrt(variance / features + norm.epsilon);
    for (int64_t i = 0; i < features; ++i)
        out[i] = (x[i] - mean) * scale * norm.gamma[i] + (norm.beta ? norm.beta[i] : 0);
}

// Turns each pair of features (i, i + width / 2) of some heads.
inline void rotate(const Angles& angles, int64_t row, float* x, int64_t heads, int64_t width) {
    const int64_t half = width / 2;
    const float *cosine = angles.cosine + row * angles.stride, *sine = angles.sine + row * angles.stride;
    for (int64_t h = 0; h < heads; ++h, x += width)
        for (int64_t i = 0; i < half; ++i) {
            const float first = x[i], second = x[i + half];
            x[i] = first * cosine[i] - second * sine[i];
            x[i + half] = second * cosine[i + half] + first * sine[i + half];
        }
}

inline vector activate(int kind, vector x) {
    switch (kind) {
        case RELU: return x < 0 ? vector{} : x;  // what is not a number stays so
        case SILU: return x / (1 + exponential(-x));
        case GELU_TANH: return x / (1 + exponential(-1.5957691216f * (x + 0.044715f * x * x * x)));
        default: {  // erf to 2e-7 (Abramowitz and Stegun, 1964, 7.1.26)
            const vector size = (x > 0 ? x : -x) * 0.70710678f, t = 1 / (1 + 0.3275911f * size);
            const vector series =
                t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
            const vector rest = series * exponential(-size * size);
            return 0.5f * x * (x > 0 ? 2 - rest : rest);
        }
    }
}

// One step of a decoder layer, by all threads of a team. x (rows, features) becomes the layer's output; the other
// buffers are memory that they share, each a row's widest plus a vector.
struct Step {
    const Layer& layer;
    const Rows& rows;
    const Angles& angles;
    int64_t features;
    float *x, *a, *b, *c, *d, *packed;

    // What goes into a sublayer.
    const float* begin(int sublayer) const {
        if (!layer.pre_norm) return x;
#pragma omp for
        for (int64_t r = 0; r < rows.count; ++r)
            normalize(layer.norms[sublayer], x + r * features, d + r * features, features);
        return d;
    }

    // What comes out of it is added, and normalised.
    void end(int sublayer, const Matrix& matrix, const float* found) const {
        multiply(found, rows.count, {{matrix, d}}, packed);
#pragma omp for
        for (int64_t r = 0; r < rows.count; ++r) {
            float* const row = x + r * features;
            for (int64_t i = 0; i < features; ++i) row[i] += d[r * features + i];
            if (!layer.pre_norm) normalize(layer.norms[sublayer], row, row, features);
        }
    }

    // Self-attention: each row's key and value become its hypothesis' newest entry, and it sees what the mask allows.
    void look_back(const Entries& past) const {
        const Heads& shape = layer.shape;
        const int64_t queries = layer.query.columns, keys = layer.key.columns;
        const int64_t newest = past.count - rows.beams;
        multiply(begin(0), rows.count, {{layer.query, a}, {layer.key, b}, {layer.value, c}}, packed);
        if (rows.places) {  // closed hypotheses have no row: their entries are to be no garbage
#pragma omp for
            for (int64_t place = 0; place < rows.sentences * rows.beams; ++place)
                for (float* entries : {past.keys, past.values}) put_entry(past, entries, place, newest, nullptr);
        }
#pragma omp for
        for (int64_t r = 0; r < rows.count; ++r) {
            const int64_t place = rows.place(r);
            float *const query = a + r * queries, *const key = b + r * keys, *const value = c + r * keys;
            if (angles.cosine) {
                rotate(angles, r, query, shape.heads, shape.width);
                rotate(angles, r, key, shape.key_heads, shape.width);
            }
            put_entry(past, past.keys, place, newest, key);
            put_entry(past, past.values, place, newest, value);
            attend(shape, query, past, place / rows.beams, place % rows.beams, query);
        }
        end(0, layer.self_output, a);
    }

    // Writes one hypothesis' entry, head by head; of none zeros.
    void put_entry(const Entries& past, float* entries, int64_t place, int64_t newest, const float* from) const {
        const int64_t width = layer.shape.width;
        entries += place / rows.beams * past.sentence_stride + (newest + place % rows.beams) * past.entry_stride;
        for (int64_t h = 0; h < layer.shape.key_heads; ++h, entries += past.head_stride)
            if (from) std::copy(from + h * width, from + (h + 1) * width, entries);
            else std::fill(entries, entries + width, 0.0f);
    }

    // Self-attention of whole sentences, (sentences, positions): each row sees those of its own that the mask allows.
    void look_around(const uint8_t* mask) const {
        const int64_t length = rows.beams, keys = layer.key.columns;
        multiply(begin(0), rows.count, {{layer.query, a}, {layer.key, b}, {layer.value, c}}, packed);
        const Entries sentence{b, c, mask, length, length * keys, layer.shape.width, keys, length, 0};
#pragma omp for
        for (int64_t r = 0; r < rows.count; ++r) {
            float* const query = a + r * layer.query.columns;
            attend(layer.shape, query, sentence, r / length, 0, query);
        }
        end(0, layer.self_output, a);
    }

    // Attention to the source.
    void look_at(const Entries& memory) const {
        const int64_t queries = layer.cross_query.columns;
        multiply(begin(1), rows.count, {{layer.cross_query, a}}, packed);
#pragma omp for
        for (int64_t r = 0; r < rows.count; ++r) {
            float* const query = a + r * queries;
            attend(layer.shape, query, memory, rows.place(r) / rows.beams, rows.place(r) % rows.beams, query);
        }
        end(1, layer.cross_output, a);
    }

    void feed_forward(int sublayer) const {
        const float* const in = begin(sublayer);
        if (layer.gate.columns) multiply(in, rows.count, {{layer.inner, a}, {layer.gate, b}}, packed);
        else multiply(in, rows.count, {{layer.inner, a}}, packed);
        const int64_t numbers = rows.count * layer.inner.columns;
#pragma omp for
        for (int64_t i = 0; i < numbers; i += LANES) {
            vector x = activate(layer.activation, load(a + i));
            if (layer.gate.columns) x *= load(b + i);
            store(a + i, x);
        }
        end(sublayer, layer.outer, a);
    }
};

}  // namespace
