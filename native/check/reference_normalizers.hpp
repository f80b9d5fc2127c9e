// The normalizers that are not a softmax, in plain loops in double precision, for check.cpp. Thresholds are bisected.
#pragma once

#include "check/reference_attention.hpp"

namespace overt {

// The weights, output and gradients of a problem under one of them, from its scores. There is neither a sink nor a temperature.
struct NormalizedReference {
    Normalizer kind;
    double alpha;
    Numbers weights, output, d_value, d_scores;

    NormalizedReference(const Problem& p, const Numbers& scores, Normalizer kind, double alpha)
        : kind(kind), alpha(alpha), weights(p.pairs()), output(p.rows() * p.value_dim), d_value(p.value.size()), d_scores(p.pairs()) {
        for (Index row = 0; row < p.rows(); row++)
            if (p.alive(row)) of_row(p, scores, row);
    }

    void of_row(const Problem& p, const Numbers& scores, Index row) {
        Numbers totals, slopes;
        std::vector<Index> keys;
        for (Index j = 0; j < p.keys; j++)
            if (p.allowed(row, j)) keys.push_back(j), totals.push_back(scores[row * p.keys + j] + p.bias[row * p.keys + j]);
        Numbers shares = normalized(totals, slopes), d_weights(keys.size(), 0);
        double mean = 0, slope_sum = 0;
        for (std::size_t i = 0; i < keys.size(); i++) {
            const double *value = Reference::value_of(p, row, keys[i]), *upstream = &p.upstream[row * p.value_dim];
            double* d_value_row = &d_value[(row / p.queries * p.keys + keys[i]) * p.value_dim];
            for (Index e = 0; e < p.value_dim; e++) {
                output[row * p.value_dim + e] += shares[i] * value[e];
                d_weights[i] += upstream[e] * value[e], d_value_row[e] += shares[i] * upstream[e];
            }
            weights[row * p.keys + keys[i]] = shares[i];
            mean += (kind == Normalizer::entmax ? slopes[i] : shares[i]) * d_weights[i], slope_sum += slopes[i];
        }
        double delta = kind == Normalizer::sigmoid ? 0 : kind == Normalizer::sum ? mean : mean / slope_sum;
        for (std::size_t i = 0; i < keys.size(); i++) d_scores[row * p.keys + keys[i]] = slopes[i] * (d_weights[i] - delta);
    }

    // The weights of a row, and how fast each grows with its score.
    Numbers normalized(const Numbers& totals, Numbers& slopes) const {
        Numbers result;
        double total = 0;
        for (double t : totals) total += t;
        if (kind != Normalizer::entmax) {
            for (double t : totals) {
                result.push_back(kind == Normalizer::sum ? t / total : 1 / (1 + std::exp(-t)));
                slopes.push_back(kind == Normalizer::sum ? 1 / total : result.back() * (1 - result.back()));
            }
            return result;
        }
        double highest = (alpha - 1) * *std::max_element(totals.begin(), totals.end()), low = highest - 1, high = highest;
        for (int i = 0; i < 60; i++) {
            double middle = (low + high) / 2, sum = 0;
            for (double t : totals) sum += std::pow(std::fmax((alpha - 1) * t - middle, 0), 1 / (alpha - 1));
            (sum >= 1 ? low : high) = middle;
        }
        for (double t : totals) {
            result.push_back(std::pow(std::fmax((alpha - 1) * t - low, 0), 1 / (alpha - 1)));
            slopes.push_back(result.back() > 0 ? std::pow(result.back(), 2 - alpha) : 0);
        }
        return result;
    }
};

}  // namespace overt
