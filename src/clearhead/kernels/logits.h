// What a search wants to know of a row of logits.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "vectors.h"

namespace {

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
        const float high = std::max(highest, largest(most)), base = high > NOTHING ? high : 0;
        for (int64_t i = 0; i < columns; i += LANES) sums += exponential(load(logits + i) - base);
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
        add(high, other.highest == high ? other.total : other.total * std::exp(other.highest - high));
        for (size_t i = 0; i < other.values.size(); ++i) offer(other.values[i], other.places[i]);
    }
};

}  // namespace
