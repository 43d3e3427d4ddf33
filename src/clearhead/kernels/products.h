// Products of some rows with a matrix that was packed beforehand, in floats or in integers.
//
// A matrix, of `columns` outputs and `depth` inputs, lies in panels, (ceil(columns / COLUMNS), depth, COLUMNS): a tile of
// the result, ROWS x COLUMNS, then stays in registers while both its sides are read in order. Integers lie in pairs
// that one instruction multiplies and adds, (panels, depth / 2, COLUMNS, 2).

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>

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
    const float* steps;  // of integers: how much 1 is, by column; of floats: null
    const float* bias;   // or null; steps and bias are those of whole panels
    int64_t columns, depth;
};

struct Floats {
    typedef float number;  // what a tile reads of a row of x at a time
    typedef vector several;
    static constexpr int64_t together = 1;  // inputs that are in one number

    static several load_panel(const void* panels, int64_t at) { return load(static_cast<const float*>(panels) + at); }
    static __attribute__((always_inline)) void add_product(several& sum, number x, const several& a) { sum += x * a; }
    static vector result(several sum, float, const float*) { return sum; }

    // A row of x, its numbers `stride` apart in what a tile reads.
    static float pack(const float* row, int64_t depth, number* to, int64_t stride) {
        for (int64_t k = 0; k < depth; ++k) to[k * stride] = row[k];
        return 1;
    }
};

#if defined(__AVX2__)
#define HAS_INT16 1

// A row as multiples of a step; returns the step. Of two such rows no sum of products leaves 32 bits (Cauchy-Schwarz).
template <typename Put>
float quantize(const float* row, int64_t depth, const Put& put) {
    float squares = 0, most = 0;
    for (int64_t k = 0; k < depth; ++k) {
        squares += row[k] * row[k];
        most = std::max(most, std::abs(row[k]));
    }
    const float step = std::max(std::sqrt(squares) / 46000, most / 32767);
    for (int64_t k = 0; k < depth; ++k) put(k, squares == 0 ? 0 : int16_t(std::nearbyint(row[k] / step)));
    return step;
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
        asm volatile("" : "+x"(sum));  // GCC would do all products before it adds any, and run out of registers
    }
    static vector as_floats(several x) { return reinterpret_cast<vector>(_mm512_cvtepi32_ps(x)); }
#else
    typedef __m256i several;
    static several load_panel(const void* panels, int64_t at) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const int16_t*>(panels) + 2 * at));
    }
    static __attribute__((always_inline)) void add_product(several& sum, number pair, const several& a) {
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_set1_epi32(pair), a));
        asm volatile("" : "+x"(sum));
    }
    static vector as_floats(several x) { return reinterpret_cast<vector>(_mm256_cvtepi32_ps(x)); }
#endif
    static vector result(several sum, float row_step, const float* steps) {
        return as_floats(sum) * (row_step * load(steps));
    }
    static float pack(const float* row, int64_t depth, number* to, int64_t stride) {
        return quantize(row, depth, [&](int64_t k, int16_t value) {
            std::memcpy(reinterpret_cast<char*>(to + k / 2 * stride) + k % 2 * sizeof value, &value, sizeof value);
        });
    }
};
#else
#define HAS_INT16 0
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
void tile(const Matrix& matrix, int64_t column, const typename Kind::number* x, const float* row_steps, float* out) {
    constexpr int V = 2 * P;
    const int64_t steps = (matrix.depth + Kind::together - 1) / Kind::together;
    typename Kind::several sums[R][V] = {};
    for (int64_t k = 0; k < steps; ++k, x += R) {
        typename Kind::several panel[V];
        each<V>([&](auto v) __attribute__((always_inline)) {
            panel[v] = Kind::load_panel(matrix.panels, (column + v / 2 * COLUMNS) * steps + k * COLUMNS + v % 2 * LANES);
            asm("" : "+x"(panel[v]));  // to be read once, not by every row
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
                row[side] = Kind::result(sums[r][2 * p + side], row_steps[r], matrix.steps + at);
                if (matrix.bias) row[side] += load(matrix.bias + at);
            });
            put(row, out + r * matrix.columns + column + p * COLUMNS, matrix.columns - column - p * COLUMNS);
        });
    });
}

// So many rows at a time stay in the caches while all panels pass.
inline int64_t rows_at_once(int64_t depth) { return std::max<int64_t>(ROWS, (1 << 19) / depth / ROWS * ROWS); }

// How many floats `multiply` needs to lay out its rows, and their steps.
inline int64_t room_for(int64_t rows, int64_t depth) { return std::min(rows, rows_at_once(depth)) * (depth + 1); }

// A matrix and where the product with it goes.
struct Product {
    const Matrix& matrix;
    float* out;
};

// The tiles of some rows, laid out in groups, times the panels from column `first` up to `end`.
template <typename Kind>
void multiply_panels(const Matrix& matrix, int64_t first, int64_t end, const typename Kind::number* packed,
                     const float* row_steps, float* out, int64_t rows) {
    const int64_t steps = (matrix.depth + Kind::together - 1) / Kind::together;
    for (int64_t r = 0; r < rows; r += ROWS)
        as_constant<ROWS>(std::min<int64_t>(ROWS, rows - r), [&](auto count) {
            const auto multiply_tile = [&](auto panels, int64_t column) {
                tile<Kind, count, panels>(matrix, column, packed + r * steps, row_steps + r, out + r * matrix.columns);
            };
            constexpr int wide = count <= 2 ? 4 / count : 1;
            int64_t column = first;
            for (; column + wide * COLUMNS <= end; column += wide * COLUMNS)
                multiply_tile(std::integral_constant<int, wide>(), column);
            for (; column < end; column += COLUMNS) multiply_tile(std::integral_constant<int, 1>(), column);
        });
}

template <typename Kind>
void multiply_as(const float* x, int64_t rows, int64_t depth, std::initializer_list<Product> products, float* room) {
    typedef typename Kind::number number;
    const int64_t steps = (depth + Kind::together - 1) / Kind::together, most = rows_at_once(depth);
    float* const row_steps = room + std::min(rows, most) * depth;
    number* const packed = reinterpret_cast<number*>(room);
    for (int64_t start = 0; start < rows; start += most) {
        const int64_t size = std::min(most, rows - start), columns = size <= 2 ? 4 * COLUMNS : COLUMNS;
#pragma omp for
        for (int64_t r = 0; r < size; ++r) {
            const int64_t first = r / ROWS * ROWS, group = std::min<int64_t>(ROWS, size - first);
            number* const to = packed + first * steps + r - first;
            if (depth % Kind::together) to[(steps - 1) * group] = 0;
            row_steps[r] = Kind::pack(x + (start + r) * depth, depth, to, group);
        }
        for (const auto& [matrix, out] : products) {
            float* const block = out + start * matrix.columns;
#pragma omp for nowait
            for (int64_t first = 0; first < matrix.columns; first += columns)
                multiply_panels<Kind>(matrix, first, std::min(matrix.columns, first + columns), packed, row_steps, block,
                                      size);
        }
#pragma omp barrier
    }
}

// Each product's out (rows, columns) = x (rows, depth) times its matrix, plus its bias; the matrices are of one kind and
// depth. All threads of a team call it together.
inline void multiply(const float* x, int64_t rows, std::initializer_list<Product> products, float* room) {
    const Matrix& first = products.begin()->matrix;
#if HAS_INT16
    if (first.steps) return multiply_as<Int16>(x, rows, first.depth, products, room);
#endif
    multiply_as<Floats>(x, rows, first.depth, products, room);
}

}  // namespace
