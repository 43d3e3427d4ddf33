// What decoding spends its time with, written for the vector registers of a CPU: products with packed matrices
// (products.h), attention of single queries to a cache (attention.h), a decoder layer made of these, and the choice of
// tokens. Plain C++17 with GCC's vectors (GCC or Clang), compiled with -O3 -march=native when it is first needed
// (library.py). What it computes is what parts/layers.py computes with PyTorch.
//
// What goes in and comes out is float32. Where a comment gives a shape, the last axis is contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <omp.h>

#include "attention.h"
#include "products.h"
#include "vectors.h"

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 18;  // multiplications that take longer than waking another thread

// A thread's own memory for what lies between two steps; valid until the same thread asks again.
float* room(int64_t floats) {
    thread_local std::vector<float> memory;
    if (int64_t(memory.size()) < floats) memory.resize(floats);
    return memory.data();
}

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

void normalize(const Norm& norm, const float* x, float* out, int64_t features) {
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
void rotate(const Angles& angles, int64_t row, float* x, int64_t heads, int64_t width) {
    const int64_t half = width / 2;
    const float *cosine = angles.cosine + row * angles.stride, *sine = angles.sine + row * angles.stride;
    for (int64_t h = 0; h < heads; ++h, x += width)
        for (int64_t i = 0; i < half; ++i) {
            const float first = x[i], second = x[i + half];
            x[i] = first * cosine[i] - second * sine[i];
            x[i + half] = second * cosine[i + half] + first * sine[i + half];
        }
}

vector activate(int kind, vector x) {
    switch (kind) {
        case RELU: return x > 0 ? x : vector{};
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

// What is known of a row of logits of which some columns were seen.
struct Best {
    std::vector<float> values;  // the k largest, the largest first; of equal ones the first
    std::vector<int64_t> places;
    float highest = NOTHING, total = 0;  // of all: the largest, and the sum of exponentials divided by its own
    static constexpr float NOTHING = -std::numeric_limits<float>::infinity();

    explicit Best(int64_t k) : values(k, NOTHING), places(k, 0) {}

    // Logits of `columns` columns from `first` on, with room for whole vectors; they don't stay what they are.
    void see(float* logits, int64_t first, int64_t columns, const int64_t* banned, int64_t bans) {
        std::fill(logits + columns, logits + (columns + LANES - 1) / LANES * LANES, NOTHING);
        vector most = vector{} + NOTHING, sums = {};
        for (int64_t i = 0; i < columns; i += LANES) most = load(logits + i) > most ? load(logits + i) : most;
        const float high = std::max(highest, largest(most));
        for (int64_t i = 0; i < columns; i += LANES) sums += exponential(load(logits + i) - high);
        add(high, sum(sums));
        for (int64_t i = 0; i < bans; ++i)
            if (banned[i] >= first && banned[i] < first + columns) logits[banned[i] - first] = NOTHING;
        for (int64_t i = 0; i < columns; i += LANES) {
            const whole_numbers larger = load(logits + i) > values.back();
            int32_t any = 0;
            for (int lane = 0; lane < LANES; ++lane) any |= larger[lane];
            if (any)
                for (int64_t j = i; j < std::min(i + LANES, columns); ++j) offer(logits[j], first + j);
        }
    }

    void add(float high, float more) {
        if (high > highest) total *= std::exp(highest - high);
        highest = std::max(high, highest);
        total += more;
    }

    void offer(float value, int64_t place) {
        if (!(value > values.back())) return;
        int64_t at = values.size() - 1;
        for (; at && value > values[at - 1]; --at) values[at] = values[at - 1], places[at] = places[at - 1];
        values[at] = value, places[at] = place;
    }

    // What another one saw, of later columns.
    void join(const Best& other) {
        const float high = std::max(highest, other.highest);
        add(high, other.total * std::exp(other.highest - high));
        for (size_t i = 0; i < other.values.size(); ++i) offer(other.values[i], other.places[i]);
    }
};

}  // namespace

extern "C" {

// How many columns a panel has.
int panel_columns() { return COLUMNS; }

int has_int16() { return HAS_INT16; }
int has_int8() { return HAS_INT8; }

// out (rows, columns) = x (rows, depth) times a matrix, plus its bias.
void packed_product(const Matrix* matrix, const float* x, float* out, int64_t rows, int threads) {
    if (rows * matrix->depth * matrix->columns < WORTH_A_THREAD) threads = 1;
    float* const packed = room(room_for(rows, matrix->depth));
#pragma omp parallel num_threads(threads) if (threads > 1)
    multiply(x, rows, {{*matrix, out}}, packed);
}

#if HAS_INT16

// The rows of a matrix (rows, depth) as integers (rows, depth), an even number of them, and a step (rows) each.
void quantize_rows(const float* x, int32_t* pairs, float* steps, int64_t rows, int64_t depth) {
    for (int64_t r = 0; r < rows; ++r) steps[r] = Int16::pack(x + r * depth, depth, pairs + r * depth / 2, 1).step;
}

#endif

// out (rows, features) = a layer's output for each row of x.
//
// With a past: for the next position of each hypothesis; the last `beams` of the past's entries are to be written. Without:
// for all positions of sentences, (sentences, beams), of which the bytes `mask` say where they have tokens, or null.
void run_layer(const Layer* layer, const float* x, float* out, const Rows* rows, const Entries* past,
               const Entries* memory, const Angles* angles, const uint8_t* mask, int threads) {
    const int64_t features = layer->outer.columns, count = rows->count;
    int64_t widest = features, work = 0, packed = 0;
    for (const Matrix* matrix :
         {&layer->query, &layer->key, &layer->value, &layer->self_output, &layer->cross_query, &layer->cross_output,
          &layer->inner, &layer->gate, &layer->outer})
        if (matrix->columns) {
            widest = std::max({widest, matrix->columns, matrix->depth});
            work += matrix->columns * matrix->depth;
            packed = std::max(packed, room_for(count, matrix->depth));
        }
    if (count * work < WORTH_A_THREAD) threads = 1;
    const int64_t size = count * widest + LANES;
    float* const buffers = room(4 * size + packed);
    std::copy(x, x + count * features, out);
    const Step step{*layer, *rows, *angles, features, out, buffers, buffers + size, buffers + 2 * size,
                    buffers + 3 * size, buffers + 4 * size};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        if (past) step.look_back(*past);
        else step.look_around(mask);
        if (layer->cross_query.columns) step.look_at(*memory);
        step.feed_forward(layer->cross_query.columns ? 2 : 1);
    }
}

// For each row of x (rows, depth): the logarithm of the sum of exponentials of its logits, which are x times the matrix,
// and the k best of them, the best first, with their columns; those of `banned` not.
//
// Logits stay in the cache for as long as it takes to look at them: a vocabulary is wide, and memory is slow.
void best_logits(const Matrix* matrix, const float* x, const int64_t* banned, int64_t bans, float* normalizers,
                 float* best, int64_t* places, int64_t rows, int64_t k, int threads) {
    if (rows * matrix->depth * matrix->columns < WORTH_A_THREAD) threads = 1;
    const int64_t most = rows_at_once(matrix->depth);
    for (; rows > most; rows -= most, x += most * matrix->depth, normalizers += most, best += most * k, places += most * k)
        best_logits(matrix, x, banned, bans, normalizers, best, places, most, k, threads);
    const int64_t block = std::clamp<int64_t>((1 << 16) / std::max<int64_t>(rows, 1) / COLUMNS, 1, 16) * COLUMNS;
    const int64_t for_rows = room_for(rows, matrix->depth);
    float* const packed = room(for_rows + threads * rows * block);
    std::vector<Best> found(threads * rows, Best(k));
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        const int64_t thread = omp_get_thread_num();
        float* const logits = packed + for_rows + thread * rows * block;
        Best* const mine = &found[thread * rows];
        multiply_blocks(*matrix, x, rows, block, packed, logits, [&](int64_t first, int64_t columns) {
            for (int64_t r = 0; r < rows; ++r) mine[r].see(logits + r * block, first, columns, banned, bans);
        });
#pragma omp for
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t other = 1; other < threads; ++other) found[r].join(found[other * rows + r]);
            normalizers[r] = found[r].highest + std::log(found[r].total);
            std::copy_n(found[r].values.data(), k, best + r * k);
            std::copy_n(found[r].places.data(), k, places + r * k);
        }
    }
}

}  // extern "C"
