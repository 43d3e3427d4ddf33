// What decoding spends its time with, written for the vector registers of a CPU: products of some rows with a matrix that was
// packed beforehand, and attention of single queries to a cache. Plain C++17 with GCC's vectors (GCC or Clang), compiled
// with -O3 -march=native when it is first needed (library.py); what it computes is what PyTorch's operators compute.
//
// All tensors are float32. Where a comment gives a shape, the last axis is contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace {

// A tile of the product, ROWS x 2 vectors, fills the registers together with two vectors of the matrix and one of x.
#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 8;
#endif
constexpr int COLUMNS = 2 * LANES;

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

vector load(const float* from) { return *reinterpret_cast<const vector*>(from); }
void store(float* to, vector what) { *reinterpret_cast<vector*>(to) = what; }

float sum(vector x) {
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += x[i];
    return total;
}

// R rows of x, as (depth, R), times a panel, (depth, COLUMNS), plus bias (COLUMNS): the first `columns` of it to `out`.
template <int R>
void tile(int64_t depth, const float* x, const float* panel, const float* bias, float* out, int64_t stride,
          int64_t columns) {
    vector left[R] = {}, right[R] = {};
    for (int64_t k = 0; k < depth; ++k, x += R, panel += COLUMNS) {
        const vector a = load(panel), b = load(panel + LANES);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            left[r] += x[r] * a;
            right[r] += x[r] * b;
        }
    }
    for (int r = 0; r < R; ++r, out += stride) {
        float row[COLUMNS];
        float* const to = columns == COLUMNS ? out : row;
        for (auto [offset, value] : {std::pair{0, left[r]}, {LANES, right[r]}}) {
            if (bias) value += load(bias + offset);
            store(to + offset, value);
        }
        if (columns < COLUMNS) std::copy(row, row + columns, out);
    }
}

// The same for any number of rows up to ROWS.
template <int R = ROWS>
void tile_of(int64_t rows, int64_t depth, const float* x, const float* panel, const float* bias, float* out,
             int64_t stride, int64_t columns) {
    if constexpr (R == 0) return;
    else if (rows == R) tile<R>(depth, x, panel, bias, out, stride, columns);
    else tile_of<R - 1>(rows, depth, x, panel, bias, out, stride, columns);
}

// Rows of x, `ROWS` at a time, each group as (depth, rows of the group): the tile then reads it in order.
void pack_rows(const float* x, int64_t rows, int64_t depth, float* packed) {
    for (int64_t first = 0; first < rows; first += ROWS) {
        const int64_t group = std::min<int64_t>(ROWS, rows - first);
        float* to = packed + first * depth;
        for (int64_t r = 0; r < group; ++r)
            for (int64_t k = 0; k < depth; ++k) to[k * group + r] = x[(first + r) * depth + k];
    }
}

}  // namespace

extern "C" {

// How many columns a panel has.
int panel_columns() { return COLUMNS; }

// out (rows, columns) = x (rows, depth) times a matrix in panels (ceil(columns / COLUMNS), depth, COLUMNS), plus bias,
// of whole panels too, or null.
void packed_product(const float* x, const float* panels, const float* bias, float* out, int64_t rows, int64_t depth,
                    int64_t columns, int threads) {
    // So many rows at a time stay in the caches while all panels pass.
    const int64_t block = std::max<int64_t>(ROWS, (1 << 19) / depth / ROWS * ROWS);
    const int64_t count = (columns + COLUMNS - 1) / COLUMNS;
    thread_local std::vector<float> packed;
    for (int64_t start = 0; start < rows; start += block) {
        const int64_t size = std::min(block, rows - start);
        if (int64_t(packed.size()) < size * depth) packed.resize(size * depth);
        float* const blocked = packed.data();
        pack_rows(x + start * depth, size, depth, blocked);
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t p = 0; p < count; ++p) {
            const int64_t column = p * COLUMNS, width = std::min<int64_t>(COLUMNS, columns - column);
            const float* panel = panels + column * depth;
            for (int64_t r = 0; r < size; r += ROWS)
                tile_of(std::min<int64_t>(ROWS, size - r), depth, blocked + r * depth, panel,
                        bias ? bias + column : nullptr, out + (start + r) * columns + column, columns, width);
        }
    }
}

// out (rows, heads * width) = attention of each row's query to the entries of its sentence that its mask allows.
//
// keys, values: (sentence, entry, key head, width), sentences and entries `sentence_stride` and `entry_stride` apart.
// place: (rows) where each row stands in the grid (sentence, hypothesis) of `beams` hypotheses; null: it fills the grid.
// mask: bytes, those of a sentence and of a hypothesis so far apart; null: every entry is allowed.
// A query that may look at nothing gets zeros.
void attend(const float* query, const float* keys, const float* values, const uint8_t* mask, const int64_t* place,
            float* out, int64_t rows, int64_t beams, int64_t entries, int64_t heads, int64_t key_heads, int64_t width,
            int64_t sentence_stride, int64_t entry_stride, int64_t mask_sentence_stride, int64_t mask_beam_stride,
            float scale, int threads) {
    const int64_t features = heads * width, group = heads / key_heads, whole = width / LANES * LANES;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; ++row) {
        const int64_t at = place ? place[row] : row, sentence = at / beams, beam = at % beams;
        thread_local std::vector<int64_t> seen;
        thread_local std::vector<float> scores;  // (entry seen, head)
        seen.clear();
        const uint8_t* allowed = mask + sentence * mask_sentence_stride + beam * mask_beam_stride;
        for (int64_t n = 0; n < entries; ++n)
            if (!mask || allowed[n]) seen.push_back(sentence * sentence_stride + n * entry_stride);
        scores.resize(seen.size() * heads);

        std::vector<float> largest(heads, -std::numeric_limits<float>::infinity()), total(heads, 0.0f);
        const float* q = query + row * features;
        float* score = scores.data();
        for (const int64_t entry : seen) {
            for (int64_t h = 0; h < heads; ++h) {
                const float *a = q + h * width, *b = keys + entry + h / group * width;
                vector products = {};
                for (int64_t i = 0; i < whole; i += LANES) products += load(a + i) * load(b + i);
                float dot = sum(products);
                for (int64_t i = whole; i < width; ++i) dot += a[i] * b[i];
                *score = dot * scale;
                largest[h] = std::max(largest[h], *score++);
            }
        }
        score = scores.data();
        for (size_t n = 0; n < seen.size(); ++n)
            for (int64_t h = 0; h < heads; ++h, ++score) total[h] += *score = std::exp(*score - largest[h]);

        float* to = out + row * features;
        std::fill(to, to + features, 0.0f);
        score = scores.data();
        for (const int64_t entry : seen) {
            for (int64_t h = 0; h < heads; ++h) {
                const float weight = *score++ / total[h], *b = values + entry + h / group * width;
                float* c = to + h * width;
                for (int64_t i = 0; i < whole; i += LANES) store(c + i, load(c + i) + weight * load(b + i));
                for (int64_t i = whole; i < width; ++i) c[i] += weight * b[i];
            }
        }
    }
}

}  // extern "C"
