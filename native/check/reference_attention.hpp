// The same mathematics in plain loops in double precision, for check.cpp: the scores, softmax and their gradients, pair by pair.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels.hpp"

namespace overt {

using Numbers = std::vector<double>;

// Forms of scores: those of Activation, a dot product, one with a soft cap, and a program, -sum_d |q_d - k_d|.
constexpr int FORMS = 7, PROGRAM = 6;

// One set of inputs that uses nearly everything at once: a range of keys for each query, a bias, a temperature, in every other problem a
// sink. All numbers are floats, so that both types start from the same.
struct Problem {
    Index batch, queries, keys, head_dim, value_dim;
    Form form;
    Activation activation;
    double softcap;
    bool has_sink;
    std::string name;  // of the shape and the form
    Numbers query, key, value, weight, bias, upstream, sink, inverse_temperature, scale;
    std::vector<Index> first, stop;

    Problem(const Index (&shape)[5], int which)
        : batch(shape[0]), queries(shape[1]), keys(shape[2]), head_dim(shape[3]), value_dim(shape[4]),
          form(which < 4 ? Form::additive : which == PROGRAM ? Form::program : Form::dot), activation(static_cast<Activation>(which % 4)), softcap(which == 5 ? 3 : 0),
          has_sink(which % 2 == 0),
          name(std::to_string(which) + ", " + std::to_string(queries) + " x " + std::to_string(keys) + " x " + std::to_string(head_dim)) {
        std::mt19937 random(7);
        auto draw = [&random](Index count) {
            Numbers drawn(static_cast<std::size_t>(count));
            for (double& number : drawn) number = static_cast<float>(static_cast<double>(random()) / 1073741824.0 - 2.0);
            return drawn;
        };
        query = draw(rows() * head_dim), key = draw(batch * keys * head_dim), value = draw(batch * keys * value_dim);
        weight = draw(batch * head_dim), bias = draw(pairs()), upstream = draw(rows() * value_dim), sink = draw(batch);
        inverse_temperature = Numbers(static_cast<std::size_t>(batch), 0.75), scale = Numbers(static_cast<std::size_t>(batch), 0.5);
        for (Index i = 0; i < rows(); i++) {
            first.push_back(static_cast<Index>(random() % 3) * keys / 4);
            stop.push_back(keys - static_cast<Index>(random() % 3) * keys / 4);  // some ranges hold nothing
        }
    }

    Index rows() const { return batch * queries; }
    Index pairs() const { return batch * queries * keys; }
    bool allowed(Index row, Index j) const { return first[row] <= j && j < stop[row]; }
    bool alive(Index row) const { return first[row] < stop[row]; }
};

inline double activated(Activation activation, double x) {
    switch (activation) {
        case Activation::tanh: return std::tanh(x);
        case Activation::sigmoid: return 1 / (1 + std::exp(-x));
        case Activation::relu: return x > 0 ? x : 0;
        default: return x > 0 ? x : 0.2 * x;
    }
}

inline double slope(Activation activation, double x) {
    double a = activated(activation, x);
    switch (activation) {
        case Activation::tanh: return 1 - a * a;
        case Activation::sigmoid: return a * (1 - a);
        case Activation::relu: return x > 0;
        default: return x > 0 ? 1 : 0.2;
    }
}

inline double score_of(const Problem& p, Index row, Index j) {
    const double *q = &p.query[row * p.head_dim], *w = &p.weight[row / p.queries * p.head_dim];
    const double* k = &p.key[(row / p.queries * p.keys + j) * p.head_dim];
    double total = 0;
    for (Index d = 0; d < p.head_dim; d++)
        total += p.form == Form::dot       ? q[d] * k[d] * p.scale[0]
                 : p.form == Form::program ? -std::fabs(q[d] - k[d])
                                           : w[d] * activated(p.activation, q[d] + k[d]);
    return p.softcap > 0 ? p.softcap * std::tanh(total / p.softcap) : total;
}

struct Reference {
    Numbers scores, weights, output, log_sum_exp, delta, d_query, d_key, d_value, d_weight, d_bias;

    explicit Reference(const Problem& p)
        : scores(p.pairs()), weights(p.pairs()), output(p.rows() * p.value_dim), log_sum_exp(p.rows()), delta(p.rows()),
          d_value(p.value.size()), d_bias(p.pairs()) {
        for (Index row = 0; row < p.rows(); row++) forward(p, row), backward(p, row);
        score_gradients(p, d_bias);
    }

    void forward(const Problem& p, Index row) {
        double *weight = &weights[row * p.keys], *score = &scores[row * p.keys];
        double sink = p.has_sink ? p.sink[row / p.queries] : -INFINITY, maximum = sink;
        for (Index j = 0; j < p.keys; j++) {
            score[j] = score_of(p, row, j);
            weight[j] = p.allowed(row, j) ? p.inverse_temperature[0] * (score[j] + p.bias[row * p.keys + j]) : -INFINITY;
            maximum = std::fmax(maximum, weight[j]);
        }
        log_sum_exp[row] = maximum;
        if (!p.alive(row)) return weights_of(p, row, 0);
        double total = std::exp(sink - maximum);
        for (Index j = 0; j < p.keys; j++) total += std::exp(weight[j] - maximum);
        log_sum_exp[row] += std::log(total);
        weights_of(p, row, log_sum_exp[row]);
    }

    void weights_of(const Problem& p, Index row, double log_sum_exp) {
        for (Index j = 0; j < p.keys; j++) {
            double& weight = weights[row * p.keys + j];
            weight = std::exp(weight - log_sum_exp);
            for (Index e = 0; e < p.value_dim; e++) output[row * p.value_dim + e] += weight * value_of(p, row, j)[e];
        }
    }

    static const double* value_of(const Problem& p, Index row, Index j) {
        return &p.value[(row / p.queries * p.keys + j) * p.value_dim];
    }

    void backward(const Problem& p, Index row) {
        const double *weight = &weights[row * p.keys], *upstream = &p.upstream[row * p.value_dim];
        Numbers d_weights(static_cast<std::size_t>(p.keys), 0);
        for (Index j = 0; j < p.keys; j++) {
            double* gradient = &d_value[(row / p.queries * p.keys + j) * p.value_dim];
            for (Index e = 0; e < p.value_dim; e++) {
                d_weights[j] += upstream[e] * value_of(p, row, j)[e];
                gradient[e] += weight[j] * upstream[e];
            }
            delta[row] += weight[j] * d_weights[j];
        }
        for (Index j = 0; j < p.keys; j++)
            d_bias[row * p.keys + j] = p.inverse_temperature[0] * weight[j] * (d_weights[j] - delta[row]);
    }

    // The gradients of query, key and weight, where `upstream` is that of the scores.
    void score_gradients(const Problem& p, const Numbers& upstream) {
        d_query.assign(p.query.size(), 0), d_key.assign(p.key.size(), 0), d_weight.assign(p.weight.size(), 0);
        for (Index row = 0; row < p.rows(); row++) {
            Index entry = row / p.queries;
            for (Index j = 0; j < p.keys; j++) {
                for (Index d = 0; d < p.head_dim; d++) {
                    Index q = row * p.head_dim + d, k = (entry * p.keys + j) * p.head_dim + d, w = entry * p.head_dim + d;
                    double x = p.query[q] + p.key[k], flow = upstream[row * p.keys + j];
                    if (p.form == Form::dot) {
                        double capped = p.softcap > 0 ? score_of(p, row, j) / p.softcap : 0;
                        d_query[q] += flow * p.scale[0] * (1 - capped * capped) * p.key[k];
                        d_key[k] += flow * p.scale[0] * (1 - capped * capped) * p.query[q];
                        continue;
                    }
                    if (p.form == Form::program) {
                        double sign = (p.query[q] > p.key[k]) - (p.query[q] < p.key[k]);
                        d_query[q] -= flow * sign, d_key[k] += flow * sign;
                        continue;
                    }
                    d_weight[w] += flow * activated(p.activation, x);
                    d_query[q] += flow * p.weight[w] * slope(p.activation, x);
                    d_key[k] += flow * p.weight[w] * slope(p.activation, x);
                }
            }
        }
    }
};

struct Statistics {
    Numbers entropy, received, top_weights, top_keys, map_mean, map_max;

    Statistics(const Problem& p, const Reference& reference, Index top, const std::vector<Index>& row_edges,
               const std::vector<Index>& key_edges)
        : entropy(p.rows()), received(p.batch * p.keys) {
        for (Index row = 0; row < p.rows(); row++) {
            const double* weight = &reference.weights[row * p.keys];
            measure(p, row, weight);
            rank(p, row, weight, top);
        }
        for (Index entry = 0; entry < p.batch; entry++) {
            receive(p, reference, entry);
            for (std::size_t r = 0; r + 1 < row_edges.size(); r++)
                for (std::size_t c = 0; c + 1 < key_edges.size(); c++)
                    cell(p, reference, entry, row_edges[r], row_edges[r + 1], key_edges[c], key_edges[c + 1]);
        }
    }

    // The entropy of the weights, scaled to a sum of 1 where a sink has a share of it.
    void measure(const Problem& p, Index row, const double* weight) {
        double total = 0;
        for (Index j = 0; j < p.keys; j++) total += weight[j];
        for (Index j = 0; j < p.keys; j++) entropy[row] -= weight[j] > 0 ? weight[j] / total * std::log(weight[j] / total) : 0;
    }

    // The `top` largest weights of a row; where it has fewer keys, 0 and -1.
    void rank(const Problem& p, Index row, const double* weight, Index top) {
        std::vector<Index> order;
        for (Index j = 0; j < p.keys; j++)
            if (p.allowed(row, j)) order.push_back(j);
        std::stable_sort(order.begin(), order.end(), [weight](Index a, Index b) { return weight[a] > weight[b]; });
        for (Index rank = 0; rank < top; rank++) {
            bool there = rank < static_cast<Index>(order.size());
            top_weights.push_back(there ? weight[order[rank]] : 0);
            top_keys.push_back(there ? static_cast<double>(order[rank]) : -1);
        }
    }

    // The mean over the queries that may attend to anything.
    void receive(const Problem& p, const Reference& reference, Index entry) {
        double alive = 0;
        for (Index row = entry * p.queries; row < (entry + 1) * p.queries; row++) {
            alive += p.alive(row);
            for (Index j = 0; j < p.keys; j++) received[entry * p.keys + j] += reference.weights[row * p.keys + j];
        }
        for (Index j = 0; j < p.keys; j++) received[entry * p.keys + j] /= std::fmax(alive, 1);
    }

    void cell(const Problem& p, const Reference& reference, Index entry, Index top, Index bottom, Index left, Index right) {
        double total = 0, maximum = 0, count = static_cast<double>((bottom - top) * (right - left));
        for (Index i = top; i < bottom; i++) {
            for (Index j = left; j < right; j++) {
                double weight = reference.weights[(entry * p.queries + i) * p.keys + j];
                total += weight, maximum = std::fmax(maximum, weight);
            }
        }
        map_mean.push_back(total / std::fmax(count, 1)), map_max.push_back(maximum);
    }
};

}  // namespace overt
