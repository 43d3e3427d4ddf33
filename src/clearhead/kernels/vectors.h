// The processor's vectors, as GCC and Clang know them: plain arithmetic on several floats at a time.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512BW__)
constexpr int LANES = 16;
#elif defined(__AVX2__)
constexpr int LANES = 8;
#else
constexpr int LANES = 4;
#endif

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t whole_numbers __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline vector load(const float* from) { return *reinterpret_cast<const vector*>(from); }
inline void store(float* to, vector what) { *reinterpret_cast<vector*>(to) = what; }

// Tells the compiler that a value is in a register at this point; where it knows best, nothing.
#if defined(__x86_64__)
#define IN_A_REGISTER(value) asm volatile("" : "+x"(value))
#else
#define IN_A_REGISTER(value)
#endif

// Fewer than a vector, and zeros.
inline vector load_some(const float* from, int64_t count) {
    float all[LANES] = {};
    std::copy(from, from + count, all);
    return load(all);
}

// To the nearest whole number, of at most 2^22: no fraction fits behind so large a number as is added.
inline vector rounded_to_whole(vector x) { return (x + 12582912.0f) - 12582912.0f; }

inline float sum(vector x) {
#if defined(__AVX512BW__)
    return _mm512_reduce_add_ps(reinterpret_cast<__m512>(x));
#else
    float parts[LANES];
    store(parts, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; ++i) parts[i] += parts[i + half];
    return parts[0];
#endif
}

inline float largest(vector x) {
    float found = x[0];
    for (int i = 1; i < LANES; ++i) found = x[i] > found ? x[i] : found;
    return found;
}

// e to the power of x, with an error of 2 units in the last place: 2^n times a polynomial of what is left (Cephes' expf).
inline vector exponential(vector x) {
    x = x < -87.0f ? vector{} - 87.0f : x;  // what is below is zero, nearly
    x = x > 88.0f ? vector{} + 88.0f : x;
    const vector n = rounded_to_whole(x * 1.44269504f);
    const vector r = x - n * 0.693359375f - n * -2.12194440e-4f;
    vector p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const whole_numbers power = (__builtin_convertvector(n, whole_numbers) + 127) << 23;
    return p * reinterpret_cast<const vector&>(power);
}

// Calls `what` with 0, 1, …, N - 1 as types: a loop without a loop, so that arrays become registers.
template <typename What, int... i>
inline __attribute__((always_inline)) void each(std::integer_sequence<int, i...>, const What& what) {
    (what(std::integral_constant<int, i>()), ...);
}
template <int N, typename What>
inline __attribute__((always_inline)) void each(const What& what) {
    each(std::make_integer_sequence<int, N>(), what);
}

// Calls `what` with the number, 1 to N, as a type: each number has code of its own.
template <int N, typename What>
inline void as_constant(int64_t number, const What& what) {
    if constexpr (N > 0) {
        if (number == N) what(std::integral_constant<int, N>());
        else as_constant<N - 1>(number, what);
    }
}

}  // namespace
