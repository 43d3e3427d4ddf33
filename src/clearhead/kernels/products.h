// Products of some rows with a matrix that was packed beforehand, in floats or in integers.
//
// A matrix, of `columns` outputs and `depth` inputs, lies in panels, (ceil(columns / COLUMNS), depth, COLUMNS): a tile of
// the result, ROWS x COLUMNS, then stays in registers while both its sides are read in order. Of integers one instruction
// multiplies and adds several, so these lie together: (panels, depth / 2, COLUMNS, 2) or (panels, depth / 4, COLUMNS, 4).

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "vectors.h"

namespace {

// A tile of the product, ROWS x 2 vectors, fills the registers together with two vectors of the matrix and one of x.
#if defined(__AVX512BW__)
constexpr int ROWS = 12;
#elif defined(__AVX2__)
constexpr int ROWS = 6;
#else
constexpr int ROWS = 8;
#endif
constexpr int COLUMNS = 2 * LANES;

struct Matrix {
    const void* panels;
    const float* steps;   // of integers: how much 1 is, by column; of floats: null
    const int32_t* sums;  // of 8-bit integers: each column's sum; else null
    const float* bias;    // or null; what goes by columns is that of whole panels
    int64_t columns, depth;
};

// What the numbers of a row of x mean: `step * (number - zero)`.
struct Scale {
    float step;
    int32_t zero;
};

struct Floats {
    typedef float number;  // what a tile reads of a row of x at a time
    typedef vector several;
    static constexpr int64_t together = 1;  // inputs that are in one number

    static several load_panel(const void* panels, int64_t at) { return load(static_cast<const float*>(panels) + at); }
    static __attribute__((always_inline)) void add_product(several& sum, number x, const several& a) { sum += x * a; }
    static vector result(several sum, const Scale&, const Matrix&, int64_t) { return sum; }

    // A row of x, its numbers `stride` apart in what a tile reads.
    static Scale pack(const float* row, int64_t depth, number* to, int64_t stride) {
        for (int64_t k = 0; k < depth; ++k) to[k * stride] = row[k];
        return {1, 0};
    }
};

#if defined(__AVX2__)
#define HAS_INT16 1

// A row times `per_step`, rounded, plus `zero`, as small integers that lie as a tile reads them: several in a number.
template <typename Small>
void put_rounded(const float* row, int64_t depth, float per_step, float zero, int32_t* to, int64_t stride) {
    typedef Small small_vector __attribute__((vector_size(LANES * sizeof(Small))));
    constexpr int64_t together = sizeof(int32_t) / sizeof(Small), numbers = LANES / together;
    const auto put = [&](vector x, int64_t k, int64_t count) {
        x = rounded_to_whole(x * per_step) + zero;
        x = x > float(std::numeric_limits<Small>::max()) ? vector{} + std::numeric_limits<Small>::max() : x;
        const auto rounded = __builtin_convertvector(__builtin_convertvector(x, whole_numbers), small_vector);
        int32_t words[numbers];
        std::memcpy(words, &rounded, sizeof words);
        for (int64_t i = 0; i < count; ++i) to[(k / together + i) * stride] = words[i];
    };
    const int64_t whole = depth / LANES * LANES;
    for (int64_t k = 0; k < whole; k += LANES) put(load(row + k), k, numbers);
    if (whole < depth) put(load_some(row + whole, depth - whole), whole, (depth - whole + together - 1) / together);
}

// The step of 16-bit integers: of two such rows no sum of products leaves 32 bits (Cauchy-Schwarz).
inline float step_of(const float* row, int64_t depth) {
    vector squares = {}, most = {};
    const auto look = [&](vector x) {
        squares += x * x;
        most = x > most ? x : most;
        most = -x > most ? -x : most;
    };
    const int64_t whole = depth / LANES * LANES;
    for (int64_t k = 0; k < whole; k += LANES) look(load(row + k));
    if (whole < depth) look(load_some(row + whole, depth - whole));
    return std::max(std::sqrt(sum(squares)) / 46000, largest(most) / 32767);
}

struct Int16 {
    typedef int32_t number;  // a pair
    static constexpr int64_t together = 2;
#if defined(__AVX512BW__)
    typedef __m512i several;
    static several load_panel(const void* panels, int64_t at) {
        return _mm512_loadu_si512(static_cast<const int16_t*>(panels) + 2 * at);
    }
    static __attribute__((always_inline)) void add_product(several& sum, number pair, const several& a) {
#if defined(__AVX512VNNI__)
        sum = _mm512_dpwssd_epi32(sum, _mm512_set1_epi32(pair), a);
#else
        sum = _mm512_add_epi32(sum, _mm512_madd_epi16(_mm512_set1_epi32(pair), a));
#endif
        IN_A_REGISTER(sum);  // GCC would do all products before it adds any, and run out of them
    }
    static vector as_floats(several x) { return reinterpret_cast<vector>(_mm512_cvtepi32_ps(x)); }
#else
    typedef __m256i several;
    static several load_panel(const void* panels, int64_t at) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const int16_t*>(panels) + 2 * at));
    }
    static __attribute__((always_inline)) void add_product(several& sum, number pair, const several& a) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(pair), a));
        IN_A_REGISTER(sum);
    }
    static vector as_floats(several x) { return reinterpret_cast<vector>(_mm256_cvtepi32_ps(x)); }
#endif
    static vector result(several sum, const Scale& scale, const Matrix& matrix, int64_t column) {
        return as_floats(sum) * (scale.step * load(matrix.steps + column));
    }
    static Scale pack(const float* row, int64_t depth, number* to, int64_t stride) {
        const float step = step_of(row, depth);
        put_rounded<int16_t>(row, depth, step > 0 ? 1 / step : 0, 0, to, stride);
        return {step, 0};
    }
};
#else
#define HAS_INT16 0
#endif

#if defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define HAS_INT8 1

struct Int8 {
    typedef int32_t number;  // four, from 0 to 255; the matrix' are from -127 to 127
    typedef __m512i several;
    static constexpr int64_t together = 4;

    static several load_panel(const void* panels, int64_t at) {
        return _mm512_loadu_si512(static_cast<const int8_t*>(panels) + 4 * at);
    }
    static __attribute__((always_inline)) void add_product(several& sum, number four, const several& a) {
        sum = _mm512_dpbusd_epi32(sum, _mm512_set1_epi32(four), a);
        IN_A_REGISTER(sum);
    }
    static vector result(several sum, const Scale& scale, const Matrix& matrix, int64_t column) {
        const __m512i zeros = _mm512_mullo_epi32(_mm512_set1_epi32(scale.zero), _mm512_loadu_si512(matrix.sums + column));
        return Int16::as_floats(_mm512_sub_epi32(sum, zeros)) * (scale.step * load(matrix.steps + column));
    }
    // From the row's least number, or 0, to its largest: what comes out of a ReLU has all 256 levels for itself.
    static Scale pack(const float* row, int64_t depth, number* to, int64_t stride) {
        vector least = {}, most = {}, total = {};
        const auto look = [&](vector x) {
            least = x < least ? x : least;
            most = x > most ? x : most;
            total += x;
        };
        const int64_t whole = depth / LANES * LANES;
        for (int64_t k = 0; k < whole; k += LANES) look(load(row + k));
        if (whole < depth) look(load_some(row + whole, depth - whole));
        const float lowest = -largest(-least), step = (largest(most) - lowest) / 255, per_step = step > 0 ? 1 / step : 0;
        const float zero = std::nearbyint(-lowest * per_step);
        put_rounded<uint8_t>(row, depth, per_step, zero, to, stride);
        return {step + 0 * sum(total), int32_t(zero)};  // what is not a number stays so
    }
};
#else
#define HAS_INT8 0
#endif

// One row of a tile to `out`; the last panel may have fewer columns than a tile.
inline void put(const vector (&row)[2], float* out, int64_t columns) {
    float whole[COLUMNS];
    float* const to = columns >= COLUMNS ? out : whole;
    for (int side = 0; side < 2; ++side) store(to + side * LANES, row[side]);
    if (columns < COLUMNS) std::copy(whole, whole + columns, out);
}

// R rows of x, as (steps, R), times P panels that follow one another. With few rows several panels at a time keep the
// processor busy; the order of the sum is the same, and so is the result to the last bit.
template <typename Kind, int R, int P>
void tile(const Matrix& matrix, int64_t column, const typename Kind::number* x, const Scale* scales, float* out,
          int64_t stride) {
    constexpr int V = 2 * P;
    const int64_t steps = (matrix.depth + Kind::together - 1) / Kind::together;
    typename Kind::several sums[R][V] = {};
    for (int64_t k = 0; k < steps; ++k, x += R) {
        typename Kind::several panel[V];
        each<V>([&](auto v) __attribute__((always_inline)) {
            panel[v] = Kind::load_panel(matrix.panels, (column + v / 2 * COLUMNS) * steps + k * COLUMNS + v % 2 * LANES);
            IN_A_REGISTER(panel[v]);  // to be read once, not by every row
        });
        each<R>([&](auto r) __attribute__((always_inline)) {
            each<V>([&](auto v) __attribute__((always_inline)) { Kind::add_product(sums[r][v], x[r], panel[v]); });
        });
    }
    each<R>([&](auto r) __attribute__((always_inline)) {
        each<P>([&](auto p) __attribute__((always_inline)) {
            vector row[2];
            each<2>([&](auto side) __attribute__((always_inline)) {
                const int64_t at = column + p * COLUMNS + side * LANES;
                row[side] = Kind::result(sums[r][2 * p + side], scales[r], matrix, at);
                if (matrix.bias) row[side] += load(matrix.bias + at);
            });
            put(row, out + r * stride + p * COLUMNS, matrix.columns - column - p * COLUMNS);
        });
    });
}

// So many rows at a time stay in the caches while all panels pass.
inline int64_t rows_at_once(int64_t depth) { return std::max<int64_t>(ROWS, (1 << 19) / depth / ROWS * ROWS); }

// How many floats `multiply` needs to lay out its rows, and what their numbers mean.
inline int64_t room_for(int64_t rows, int64_t depth) { return std::min(rows, rows_at_once(depth)) * (depth + 2); }

// A matrix and where the product with it goes.
struct Product {
    const Matrix& matrix;
    float* out;
};

// Some rows, laid out in groups, times the panels from column `first` up to `end`; out (rows, end - first), its rows
// `stride` apart.
template <typename Kind>
void multiply_panels(const Matrix& matrix, int64_t first, int64_t end, const typename Kind::number* packed,
                     const Scale* scales, int64_t rows, float* out, int64_t stride) {
    const int64_t steps = (matrix.depth + Kind::together - 1) / Kind::together;
    for (int64_t r = 0; r < rows; r += ROWS)
        as_constant<ROWS>(std::min<int64_t>(ROWS, rows - r), [&](auto count) {
            const auto multiply_tile = [&](auto panels, int64_t column) {
                tile<Kind, count, panels>(matrix, column, packed + r * steps, scales + r,
                                          out + r * stride + column - first, stride);
            };
            constexpr int wide = count <= 2 ? 4 / count : 1;
            int64_t column = first;
            for (; column + wide * COLUMNS <= end; column += wide * COLUMNS)
                multiply_tile(std::integral_constant<int, wide>(), column);
            for (; column < end; column += COLUMNS) multiply_tile(std::integral_constant<int, 1>(), column);
        });
}

// Rows of x, laid out in groups of a tile's.
template <typename Kind>
void lay_out(const float* x, int64_t rows, int64_t depth, typename Kind::number* packed, Scale* scales) {
    const int64_t steps = (depth + Kind::together - 1) / Kind::together;
#pragma omp for
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t first = r / ROWS * ROWS, group = std::min<int64_t>(ROWS, rows - first);
        scales[r] = Kind::pack(x + r * depth, depth, packed + first * steps + r - first, group);
    }
}

// Calls `what` with the kind of a matrix' numbers.
template <typename What>
void as_kind(const Matrix& matrix, const What& what) {
#if HAS_INT8
    if (matrix.sums) return what(Int8());
#endif
#if HAS_INT16
    if (matrix.steps) return what(Int16());
#endif
    what(Floats());
}

// Each product's out (rows, columns) = x (rows, depth) times its matrix, plus its bias; the matrices are of one kind and
// depth. All threads of a team call it together.
inline void multiply(const float* x, int64_t rows, std::initializer_list<Product> products, float* room) {
    const int64_t depth = products.begin()->matrix.depth, most = rows_at_once(depth);
    Scale* const scales = reinterpret_cast<Scale*>(room + std::min(rows, most) * depth);
    as_kind(products.begin()->matrix, [&](auto kind) {
        typedef decltype(kind) Kind;
        auto* const packed = reinterpret_cast<typename Kind::number*>(room);
        for (int64_t start = 0; start < rows; start += most) {
            const int64_t size = std::min(most, rows - start), block = size <= 2 ? 4 * COLUMNS : COLUMNS;
            lay_out<Kind>(x + start * depth, size, depth, packed, scales);
            for (const auto& [matrix, out] : products) {
                const int64_t columns = matrix.columns;
                float* const to = out + start * columns;
#pragma omp for nowait
                for (int64_t first = 0; first < columns; first += block)
                    multiply_panels<Kind>(matrix, first, std::min(columns, first + block), packed, scales, size,
                                          to + first, columns);
            }
#pragma omp barrier
        }
    });
}

// The same for one matrix of which nobody needs all columns at once: `look` is called behind every `block` of them, in
// each thread's own `out` (rows, block), with the first and their number.
template <typename Look>
void multiply_blocks(const Matrix& matrix, const float* x, int64_t rows, int64_t block, float* room, float* out,
                     const Look& look) {
    Scale* const scales = reinterpret_cast<Scale*>(room + rows * matrix.depth);
    as_kind(matrix, [&](auto kind) {
        typedef decltype(kind) Kind;
        auto* const packed = reinterpret_cast<typename Kind::number*>(room);
        lay_out<Kind>(x, rows, matrix.depth, packed, scales);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < matrix.columns; first += block) {
            const int64_t end = std::min(matrix.columns, first + block);
            multiply_panels<Kind>(matrix, first, end, packed, scales, rows, out, block);
            look(first, end - first);
        }
    });
}

}  // namespace
