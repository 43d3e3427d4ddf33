// What decoding spends its time with, written for the vector registers of a CPU: products of some rows with a matrix
// that was packed beforehand, and attention of single queries to a cache. Plain C++17 with GCC's vectors (GCC or Clang), compiled
// with -O3 -march=native when it is first needed (library.py); what it computes is what PyTorch's operators compute.
//
// What goes in and comes out is float32; a matrix may be packed as 16-bit integers. Where a comment gives a shape, the last axis is contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

// A tile of the product, ROWS x 2 vectors, fills the registers together with two vectors of the matrix and one of x.
#if defined(__AVX512BW__)
constexpr int LANES = 16, ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, ROWS = 6;
#else
constexpr int LANES = 4, ROWS = 8;
#endif
constexpr int COLUMNS = 2 * LANES;
constexpr int64_t WORTH_A_THREAD = 1 << 18;  // multiplications that take longer than waking another thread

#if defined(__AVX512BW__)
#define HAS_INT16 1
typedef __m512i integers;
#elif defined(__AVX2__)
#define HAS_INT16 1
typedef __m256i integers;
#else
#define HAS_INT16 0
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

vector load(const float* from) { return *reinterpret_cast<const vector*>(from); }
void store(float* to, vector what) { *reinterpret_cast<vector*>(to) = what; }

float sum(vector x) {
    float total = 0;
    for (int i = 0; i < LANES; ++i) total += x[i];
    return total;
}

// Calls `tile` with the number of rows, 1 to R, as a type: each number has code of its own.
template <int R, typename Tile>
void for_rows(int64_t rows, const Tile& tile) {
    if constexpr (R > 0) {
        if (rows == R) tile(std::integral_constant<int, R>());
        else for_rows<R - 1>(rows, tile);
    }
}

// One row of a tile, plus bias if there is one, to `out`; the last panel may have fewer columns than a tile.
void finish(vector left, vector right, const float* bias, float* out, int64_t columns) {
    if (bias) {
        left += load(bias);
        right += load(bias + LANES);
    }
    float row[COLUMNS];
    float* const to = columns == COLUMNS ? out : row;
    store(to, left);
    store(to + LANES, right);
    if (columns < COLUMNS) std::copy(row, row + columns, out);
}

// R rows of x, as (depth, R), times a panel, (depth, COLUMNS).
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
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) finish(left[r], right[r], bias, out + r * stride, columns);
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

#if HAS_INT16

integers multiply_pairs(integers sum, integers a, integers b) {  // sum += a[2i] * b[2i] + a[2i + 1] * b[2i + 1]
#if defined(__AVX512VNNI__)
    return _mm512_dpwssd_epi32(sum, a, b);
#elif defined(__AVX512BW__)
    return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b));
#else
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
#endif
}

integers load(const int16_t* from) {
#if defined(__AVX512BW__)
    return _mm512_loadu_si512(from);
#else
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
#endif
}

integers everywhere(int32_t pair) {
#if defined(__AVX512BW__)
    return _mm512_set1_epi32(pair);
#else
    return _mm256_set1_epi32(pair);
#endif
}

vector as_floats(integers x) {
#if defined(__AVX512BW__)
    return reinterpret_cast<vector>(_mm512_cvtepi32_ps(x));
#else
    return reinterpret_cast<vector>(_mm256_cvtepi32_ps(x));
#endif
}

// One row of a tile. GCC would do all products before it adds any, and run out of registers: not beyond this point.
void multiply_row(integers& left, integers& right, integers pair, integers a, integers b) {
    left = multiply_pairs(left, pair, a);
    right = multiply_pairs(right, pair, b);
    asm volatile("" : "+x"(left), "+x"(right));
}

// R rows of x, as (pairs, R) pairs of integers, times a panel, (pairs, COLUMNS) pairs; back to floats by both steps.
template <int R, int... r>
void integer_tile(std::integer_sequence<int, r...>, int64_t pairs, const int32_t* x, const int16_t* panel,
                  const float* row_step, const float* column_step, const float* bias, float* out, int64_t stride,
                  int64_t columns) {
    integers left[R] = {}, right[R] = {};
    for (int64_t k = 0; k < pairs; ++k, x += R, panel += 2 * COLUMNS) {
        integers a = load(panel), b = load(panel + 2 * LANES);
        asm("" : "+x"(a), "+x"(b));  // to be read once, not by every row
        (multiply_row(left[r], right[r], everywhere(x[r]), a, b), ...);
    }
    (finish(as_floats(left[r]) * (row_step[r] * load(column_step)),
            as_floats(right[r]) * (row_step[r] * load(column_step + LANES)), bias, out + r * stride, columns),
     ...);
}

// A row as multiples of a step, and the step. Of two such rows no sum of products leaves 32 bits (Cauchy-Schwarz).
float quantize(const float* row, int64_t depth, int16_t* integers_of_row) {
    float squares = 0, largest = 0;
    for (int64_t k = 0; k < depth; ++k) {
        squares += row[k] * row[k];
        largest = std::max(largest, std::abs(row[k]));
    }
    if (squares == 0) {
        std::fill(integers_of_row, integers_of_row + depth, int16_t(0));
        return 0;
    }
    const float step = std::max(std::sqrt(squares) / 46000, largest / 32767);
    for (int64_t k = 0; k < depth; ++k) integers_of_row[k] = int16_t(std::nearbyint(row[k] / step));
    return step;
}

#endif

}  // namespace

extern "C" {

// How many columns a panel has.
int panel_columns() { return COLUMNS; }

// out (rows, columns) = x (rows, depth) times a matrix in panels (ceil(columns / COLUMNS), depth, COLUMNS), plus bias,
// of whole panels too, or null.
void packed_product(const float* panels, const float* bias, const float* x, float* out, int64_t rows, int64_t depth,
                    int64_t columns, int threads) {
    if (rows * depth * columns < WORTH_A_THREAD) threads = 1;
    // So many rows at a time stay in the caches while all panels pass.
    const int64_t block = std::max<int64_t>(ROWS, (1 << 19) / depth / ROWS * ROWS);
    thread_local std::vector<float> packed;
    for (int64_t start = 0; start < rows; start += block) {
        const int64_t size = std::min(block, rows - start);
        packed.resize(std::max<size_t>(packed.size(), size * depth));
        pack_rows(x + start * depth, size, depth, packed.data());
        const float* const blocked = packed.data();
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t column = 0; column < columns; column += COLUMNS)
            for (int64_t r = 0; r < size; r += ROWS)
                for_rows<ROWS>(std::min<int64_t>(ROWS, size - r), [&](auto count) {
                    tile<count>(depth, blocked + r * depth, panels + column * depth, bias ? bias + column : nullptr,
                                out + (start + r) * columns + column, columns,
                                std::min<int64_t>(COLUMNS, columns - column));
                });
    }
}

int has_int16() { return HAS_INT16; }

#if HAS_INT16

// The rows of a matrix (rows, depth) as integers (rows, depth) and a step (rows) each.
void quantize_rows(const float* x, int16_t* integers_of_x, float* steps, int64_t rows, int64_t depth) {
    for (int64_t r = 0; r < rows; ++r) steps[r] = quantize(x + r * depth, depth, integers_of_x + r * depth);
}

// The same product in 16-bit integers; the panels are (ceil(columns / COLUMNS), depth / 2, COLUMNS, 2), the depth even.
void integer_product(const int16_t* panels, const float* steps, const float* bias, const float* x, float* out,
                     int64_t rows, int64_t depth, int64_t columns, int threads) {
    if (rows * depth * columns < WORTH_A_THREAD) threads = 1;
    const int64_t pairs = depth / 2, block = std::max<int64_t>(ROWS, (1 << 20) / depth / ROWS * ROWS);
    thread_local std::vector<int32_t> packed;
    thread_local std::vector<float> row_steps;
    thread_local std::vector<int16_t> row;
    row.resize(depth);
    for (int64_t start = 0; start < rows; start += block) {
        const int64_t size = std::min(block, rows - start);
        packed.resize(std::max<size_t>(packed.size(), size * pairs));
        row_steps.resize(std::max<size_t>(row_steps.size(), size));
        for (int64_t r = 0; r < size; ++r) {
            const int64_t first = r / ROWS * ROWS, group = std::min<int64_t>(ROWS, size - first);
            row_steps[r] = quantize(x + (start + r) * depth, depth, row.data());
            int32_t* to = packed.data() + first * pairs + r - first;
            for (int64_t k = 0; k < pairs; ++k) std::memcpy(to + k * group, &row[2 * k], sizeof(int32_t));
        }
        const int32_t* const blocked = packed.data();
        const float* const blocked_steps = row_steps.data();
#pragma omp parallel for num_threads(threads) if (threads > 1)
        for (int64_t column = 0; column < columns; column += COLUMNS)
            for (int64_t r = 0; r < size; r += ROWS)
                for_rows<ROWS>(std::min<int64_t>(ROWS, size - r), [&](auto count) {
                    integer_tile<count>(std::make_integer_sequence<int, count>(), pairs, blocked + r * pairs, panels + column * depth, blocked_steps + r,
                                        steps + column, bias ? bias + column : nullptr,
                                        out + (start + r) * columns + column, columns,
                                        std::min<int64_t>(COLUMNS, columns - column));
                });
    }
}

#endif

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
    if (rows * entries * heads * width < WORTH_A_THREAD) threads = 1;
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
