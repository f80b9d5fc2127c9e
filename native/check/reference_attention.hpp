// The same mathematics as plain loops in double precision, for check.cpp: the scores, softmax and their gradients, pair by pair.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels.hpp"

namespace overt {

using Numbers = std::vector<double>;

// One set of inputs, nearly everything in use at once: a range of keys for each query, a bias, a temperature, in every other problem
// a sink. All numbers are floats, so that both types start from the same.
struct Problem {
    Index batch, queries, keys, features, width;
    Form form;
    Activation activation;
    double softcap;
    bool sunk;
    Numbers query, key, value, weight, bias, upstream, sink, heat, scale;
    std::vector<Index> first, stop;

    Problem(const Index (&shape)[5], int which)
        : batch(shape[0]), queries(shape[1]), keys(shape[2]), features(shape[3]), width(shape[4]),
          form(which < 4 ? Form::additive : Form::dot), activation(static_cast<Activation>(which % 4)), softcap(which == 5 ? 3 : 0),
          sunk(which % 2 == 0) {
        std::mt19937 random(7);
        auto draw = [&random](Index count) {
            Numbers drawn(static_cast<std::size_t>(count));
            for (double& number : drawn) number = static_cast<float>(static_cast<double>(random()) / 1073741824.0 - 2.0);
            return drawn;
        };
        query = draw(rows() * features), key = draw(batch * keys * features), value = draw(batch * keys * width);
        weight = draw(batch * features), bias = draw(pairs()), upstream = draw(rows() * width), sink = draw(batch);
        heat = Numbers(static_cast<std::size_t>(batch), 0.75), scale = Numbers(static_cast<std::size_t>(batch), 0.5);
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
    const double *q = &p.query[row * p.features], *w = &p.weight[row / p.queries * p.features];
    const double* k = &p.key[(row / p.queries * p.keys + j) * p.features];
    double total = 0;
    for (Index d = 0; d < p.features; d++)
        total += p.form == Form::dot ? q[d] * k[d] * p.scale[0] : w[d] * activated(p.activation, q[d] + k[d]);
    return p.softcap > 0 ? p.softcap * std::tanh(total / p.softcap) : total;
}

struct Plain {
    Numbers scores, weights, output, lse, delta, d_query, d_key, d_value, d_weight, d_bias;

    explicit Plain(const Problem& p)
        : scores(p.pairs()), weights(p.pairs()), output(p.rows() * p.width), lse(p.rows()), delta(p.rows()), d_value(p.value.size()),
          d_bias(p.pairs()) {
        for (Index row = 0; row < p.rows(); row++) forward(p, row), backward(p, row);
        score_gradients(p, d_bias);
    }

    void forward(const Problem& p, Index row) {
        double *weight = &weights[row * p.keys], *score = &scores[row * p.keys];
        double sink = p.sunk ? p.sink[row / p.queries] : -INFINITY, most = sink;
        for (Index j = 0; j < p.keys; j++) {
            score[j] = score_of(p, row, j);
            weight[j] = p.allowed(row, j) ? p.heat[0] * (score[j] + p.bias[row * p.keys + j]) : -INFINITY;
            most = std::fmax(most, weight[j]);
        }
        lse[row] = most;
        if (!p.alive(row)) return weights_of(p, row, 0);
        double total = std::exp(sink - most);
        for (Index j = 0; j < p.keys; j++) total += std::exp(weight[j] - most);
        lse[row] += std::log(total);
        weights_of(p, row, lse[row]);
    }

    void weights_of(const Problem& p, Index row, double lse) {
        for (Index j = 0; j < p.keys; j++) {
            double& weight = weights[row * p.keys + j];
            weight = std::exp(weight - lse);
            for (Index e = 0; e < p.width; e++) output[row * p.width + e] += weight * value_of(p, row, j)[e];
        }
    }

    static const double* value_of(const Problem& p, Index row, Index j) { return &p.value[(row / p.queries * p.keys + j) * p.width]; }

    void backward(const Problem& p, Index row) {
        const double *weight = &weights[row * p.keys], *upstream = &p.upstream[row * p.width];
        Numbers d_weights(static_cast<std::size_t>(p.keys), 0);
        for (Index j = 0; j < p.keys; j++) {
            double* gradient = &d_value[(row / p.queries * p.keys + j) * p.width];
            for (Index e = 0; e < p.width; e++) {
                d_weights[j] += upstream[e] * value_of(p, row, j)[e];
                gradient[e] += weight[j] * upstream[e];
            }
            delta[row] += weight[j] * d_weights[j];
        }
        for (Index j = 0; j < p.keys; j++) d_bias[row * p.keys + j] = p.heat[0] * weight[j] * (d_weights[j] - delta[row]);
    }

    // What flows on to query, key and weight, where `upstream` comes into the scores.
    void score_gradients(const Problem& p, const Numbers& upstream) {
        d_query.assign(p.query.size(), 0), d_key.assign(p.key.size(), 0), d_weight.assign(p.weight.size(), 0);
        for (Index row = 0; row < p.rows(); row++) {
            Index entry = row / p.queries;
            for (Index j = 0; j < p.keys; j++) {
                for (Index d = 0; d < p.features; d++) {
                    Index q = row * p.features + d, k = (entry * p.keys + j) * p.features + d, w = entry * p.features + d;
                    double x = p.query[q] + p.key[k], flow = upstream[row * p.keys + j];
                    if (p.form == Form::dot) {
                        double capped = p.softcap > 0 ? score_of(p, row, j) / p.softcap : 0;
                        d_query[q] += flow * p.scale[0] * (1 - capped * capped) * p.key[k];
                        d_key[k] += flow * p.scale[0] * (1 - capped * capped) * p.query[q];
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

    Statistics(const Problem& p, const Plain& plain, Index top, const std::vector<Index>& row_edges, const std::vector<Index>& key_edges)
        : entropy(p.rows()), received(p.batch * p.keys) {
        for (Index row = 0; row < p.rows(); row++) {
            const double* weight = &plain.weights[row * p.keys];
            measure(p, row, weight);
            rank(p, row, weight, top);
        }
        for (Index entry = 0; entry < p.batch; entry++) {
            receive(p, plain, entry);
            for (std::size_t r = 0; r + 1 < row_edges.size(); r++)
                for (std::size_t c = 0; c + 1 < key_edges.size(); c++)
                    cell(p, plain, entry, row_edges[r], row_edges[r + 1], key_edges[c], key_edges[c + 1]);
        }
    }

    // The entropy of the weights, scaled to a sum of 1 where a sink takes of it.
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
    void receive(const Problem& p, const Plain& plain, Index entry) {
        double alive = 0;
        for (Index row = entry * p.queries; row < (entry + 1) * p.queries; row++) {
            alive += p.alive(row);
            for (Index j = 0; j < p.keys; j++) received[entry * p.keys + j] += plain.weights[row * p.keys + j];
        }
        for (Index j = 0; j < p.keys; j++) received[entry * p.keys + j] /= std::fmax(alive, 1);
    }

    void cell(const Problem& p, const Plain& plain, Index entry, Index top, Index bottom, Index left, Index right) {
        double total = 0, most = 0, count = static_cast<double>((bottom - top) * (right - left));
        for (Index i = top; i < bottom; i++) {
            for (Index j = left; j < right; j++) {
                double weight = plain.weights[(entry * p.queries + i) * p.keys + j];
                total += weight, most = std::fmax(most, weight);
            }
        }
        map_mean.push_back(total / std::fmax(count, 1)), map_max.push_back(most);
    }
};

}  // namespace overt
