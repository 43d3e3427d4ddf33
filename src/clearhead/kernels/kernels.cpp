// What decoding spends its time with, written for the vector registers of a CPU: products with packed matrices
// (products.h), attention of single queries (attention.h), layers made of these (layers.h), and the best of a row of logits
// (logits.h). Plain C++17 with GCC's vectors (GCC or Clang), compiled with -O3 -march=native when it is first needed
// (library.py). What it computes is what parts/layers.py computes with PyTorch.
//
// What goes in and comes out is float32. Where a comment gives a shape, the last axis is contiguous.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <omp.h>

#include "attention.h"
#include "layers.h"
#include "logits.h"
#include "products.h"

namespace {

constexpr int64_t WORTH_A_THREAD = 1 << 18;  // multiplications that take longer than waking another thread

// A thread's own memory for what lies between two steps; valid until the same thread asks again.
float* room(int64_t floats) {
    thread_local std::vector<float> memory;
    if (int64_t(memory.size()) < floats) memory.resize(floats);
    return memory.data();
}

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
