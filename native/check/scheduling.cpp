// scheduling KERNEL BATCH QUERIES KEYS DIM THREADS: the share of THREADS' time in which they would work, and the seconds of the call on one.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>

#include "check/item_times.hpp"
#include "level.hpp"

using namespace overt;

int main(int, char** arguments) {
    const std::string kernel = arguments[1];
    const Index batch = std::atol(arguments[2]), queries = std::atol(arguments[3]), keys = std::atol(arguments[4]),
                dim = std::atol(arguments[5]);
    std::mt19937 random(0);
    std::normal_distribution<float> normal;
    auto numbers = [&](Index count) {
        std::vector<float> result(static_cast<std::size_t>(count));
        for (float& number : result) number = normal(random);
        return result;
    };
    std::vector<float> query = numbers(batch * queries * dim), key = numbers(batch * keys * dim), value = numbers(batch * keys * dim),
                       weight = numbers(dim), upstream = numbers(batch * queries * dim), output = upstream, sums = numbers(2 * batch * queries),
                       d_query = query, d_key = key, d_value = value, d_weight = numbers(batch * dim), delta = sums;
    std::vector<Index> of_query, of_key, zeros(static_cast<std::size_t>(batch), 0);
    for (Index b = 0; b < batch; b++) of_query.push_back(b * queries * dim), of_key.push_back(b * keys * dim);
    std::vector<double> scale(static_cast<std::size_t>(batch), 0.125);
    Inputs inputs;
    inputs.batch = batch, inputs.queries = queries, inputs.keys = keys, inputs.head_dim = inputs.value_dim = dim;
    inputs.query = {query.data(), Kind::float32, of_query.data(), dim, 1};
    inputs.key = {key.data(), Kind::float32, of_key.data(), dim, 1}, inputs.value = {value.data(), Kind::float32, of_key.data(), dim, 1};
    inputs.threads = std::atoi(arguments[6]);
    Score score;
    score.weight = {weight.data(), Kind::float32, zeros.data(), 0, 1}, score.scale = scale.data();
    const bool additive = kernel.rfind("additive", 0) == 0;
    score.form = additive ? Form::additive : Form::dot;
    SavedForward saved{output.data(), sums.data(), upstream.data()};
    SavedDotForward saved_dot{output.data(), sums.data(), upstream.data()};
    Gradients to{d_query.data(), d_key.data(), d_value.data(), d_weight.data(), delta.data(), nullptr, 0};
    auto forward = [&] {
        if (additive)
            OVERT_LEVEL::additive<float>(inputs, score, output.data(), sums.data());
        else
            OVERT_LEVEL::dot<float>(inputs, score, output.data(), sums.data());
    };
    auto run = [&] {
        if (kernel == "additive" || kernel == "dot")
            forward();
        else if (additive)
            OVERT_LEVEL::additive_gradients<float>(inputs, score, saved, to);
        else
            OVERT_LEVEL::dot_gradients<float>(inputs, score, saved_dot, to);
    };
    ItemTimes::reading();
    forward();  // what the backward pass reads
    run();
    std::vector<double> busy, seconds;
    for (int round = 0; round < 9; round++) {
        ItemTimes::in_items = ItemTimes::with_threads = ItemTimes::in_clock = 0;
        double start = ItemTimes::now();
        run();
        double alone = ItemTimes::now() - start - ItemTimes::in_clock;  // what no item does, one thread does while the others wait
        busy.push_back(alone / (inputs.threads * (alone - ItemTimes::in_items + ItemTimes::with_threads)));
        seconds.push_back(alone);
    }
    std::sort(busy.begin(), busy.end()), std::sort(seconds.begin(), seconds.end());
    std::printf("%.4f %.6f\n", busy[4], seconds[4]);
}
