// Compares the kernels of every SIMD level with plain loops in double precision, without Python: for machines that are only emulated.
// Exits with 1 where a number differs.
#include <cmath>
#include <cstdio>
#include <map>
#include <string>

#include "check/distance_program.hpp"
#include "check/reference_attention.hpp"
#include "check/reference_normalizers.hpp"
#include "check/reference_smoothing.hpp"
#include "levels.hpp"

namespace overt {

#ifdef OVERT_HAS_wide
// The widest vectors, in instructions that the machine at hand has.
namespace wide {
extern const Level LEVEL;
}
#endif

namespace {

int failures = 0, comparisons = 0;

template <class T>
void compare(const std::string& what, const std::vector<T>& computed, const std::vector<double>& expected, double tolerance) {
    double worst = 0, size = 1;
    for (std::size_t i = 0; i < expected.size(); i++) {
        if (std::isfinite(expected[i])) size = std::fmax(size, std::fabs(expected[i]));
        double off = std::fabs(static_cast<double>(computed[i]) - expected[i]);
        bool same = static_cast<double>(computed[i]) == expected[i];
        worst = same ? worst : std::isfinite(off) ? std::fmax(worst, off) : INFINITY;
    }
    comparisons++;
    if (worst / size <= tolerance) return;
    failures++;
    std::printf("%s: off by %.2e, allowed %.0e\n", what.c_str(), worst / size, tolerance);
}

// What is computed once for all levels and number types.
template <class Make>
const auto& remembered(const std::string& name, Make make) {
    static std::map<std::string, decltype(make())> known;
    auto found = known.find(name);
    return found != known.end() ? found->second : known.emplace(name, make()).first->second;
}

const Reference& reference_of(const Problem& p) {
    return remembered(p.name, [&] { return Reference(p); });
}

// A problem's numbers as the kernels take them: of type T, with the offset of each entry.
template <class T>
struct Arguments {
    std::vector<T> query, key, value, weight, bias, upstream;
    std::vector<Index> queries, keys, values, weights, pairs, rows;
    std::vector<double> ones;
    std::vector<MaskStep> steps;
    Inputs inputs;
    Score score;
    Program program;

    static constexpr Kind KIND = sizeof(T) == 4 ? Kind::float32 : Kind::float64;

    explicit Arguments(const Problem& p)
        : query(p.query.begin(), p.query.end()), key(p.key.begin(), p.key.end()), value(p.value.begin(), p.value.end()),
          weight(p.weight.begin(), p.weight.end()), bias(p.bias.begin(), p.bias.end()),
          upstream(p.upstream.begin(), p.upstream.end()) {
        inputs.batch = p.batch, inputs.queries = p.queries, inputs.keys = p.keys, inputs.head_dim = p.head_dim,
        inputs.value_dim = p.value_dim;
        inputs.query = matrix(query, queries, p.queries * p.head_dim, p.head_dim);
        inputs.key = matrix(key, keys, p.keys * p.head_dim, p.head_dim);
        inputs.value = matrix(value, values, p.keys * p.value_dim, p.value_dim);
        inputs.bias = matrix(bias, pairs, p.queries * p.keys, p.keys);
        inputs.sink = p.has_sink ? p.sink.data() : nullptr, inputs.inverse_temperature = p.inverse_temperature.data(),
        inputs.threads = 2;
        for (Index b = 0; b < p.batch; b++) rows.push_back(b * p.queries), ones.push_back(1);
        steps.push_back(
            {Step::ranges, {p.first.data(), Kind::integer, rows.data(), 1, 0}, {p.stop.data(), Kind::integer, rows.data(), 1, 0}});
        inputs.mask = {steps.data(), 1};
        score.form = p.form, score.activation = p.activation, score.scale = p.scale.data(), score.softcap = p.softcap;
        score.weight = matrix(weight, weights, p.head_dim, 0);
        if (p.form != Form::program) return;
        program.key_columns = p.head_dim, program.numbers = {0}, program.constants = {weight.data(), KIND, weights.data(), 0, 1};
        if (read_program(distance_program(static_cast<int>(p.head_dim)), p.head_dim, program)) failures++;
        score.scale = ones.data(), score.softcap = 0, score.program = &program;
    }
    Arguments(const Arguments&) = delete;

    Matrix matrix(const std::vector<T>& data, std::vector<Index>& offsets, Index size, Index row) const {
        for (Index b = 0; b < inputs.batch; b++) offsets.push_back(b * size);
        return {data.data(), KIND, offsets.data(), row, 1};
    }
};

template <class T>
std::vector<T> nan_filled(Index count) {
    return std::vector<T>(static_cast<std::size_t>(count), static_cast<T>(NAN));
}

template <class T>
void check_additive(const Kernels& kernels, const Problem& p, const std::string& name, double exact, double close) {
    Arguments<T> arguments(p);
    const Reference& reference = reference_of(p);
    std::vector<T> output = nan_filled<T>(p.rows() * p.value_dim), log_sum_exp = nan_filled<T>(p.rows());
    kernels.additive(arguments.inputs, arguments.score, output.data(), log_sum_exp.data());
    compare(name + " output", output, reference.output, exact);
    compare(name + " lse", log_sum_exp, reference.log_sum_exp, exact);
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()), value = nan_filled<T>(p.value.size());
    std::vector<T> weight = nan_filled<T>(p.weight.size()), delta = nan_filled<T>(p.rows()), bias(p.bias.size(), 0);
    Gradients to{query.data(), key.data(), value.data(), weight.data(), delta.data(), bias.data(), static_cast<Index>(bias.size())};
    kernels.additive_gradients(arguments.inputs, arguments.score, {output.data(), log_sum_exp.data(), arguments.upstream.data()},
                               to);
    compare(name + " query's gradient", query, reference.d_query, close);
    compare(name + " key's gradient", key, reference.d_key, close);
    compare(name + " value's gradient", value, reference.d_value, close);
    compare(name + " weight's gradient", weight, reference.d_weight, close);
    compare(name + " bias's gradient", bias, reference.d_bias, close);
    compare(name + " delta", delta, reference.delta, close);
}

// From a row's base and, `stride` further, its sum.
template <class T>
T lse_of(const T* sums, Index stride) {
    return sums[stride] == 0 ? static_cast<T>(-INFINITY) : static_cast<T>((sums[0] + std::log2(sums[stride])) * std::log(2.0));
}

template <class T>
void check_dot(const Kernels& kernels, const Problem& p, const std::string& name, double exact, double close) {
    Arguments<T> arguments(p);
    const Reference& reference = reference_of(p);
    std::vector<T> output = nan_filled<T>(p.rows() * p.value_dim), sums = nan_filled<T>(2 * p.rows()),
                   log_sum_exp = nan_filled<T>(p.rows());
    kernels.dot(arguments.inputs, arguments.score, output.data(), sums.data());
    for (Index row = 0; row < p.rows(); row++)
        log_sum_exp[row] = lse_of(sums.data() + row / p.queries * 2 * p.queries + row % p.queries, p.queries);
    compare(name + " output", output, reference.output, exact);
    compare(name + " lse", log_sum_exp, reference.log_sum_exp, exact);
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()), value = nan_filled<T>(p.value.size());
    std::vector<T> delta = nan_filled<T>(p.rows()), bias(p.bias.size(), 0);
    Gradients to{query.data(), key.data(), value.data(), nullptr, delta.data(), bias.data(), static_cast<Index>(bias.size())};
    kernels.dot_gradients(arguments.inputs, arguments.score, {output.data(), sums.data(), arguments.upstream.data()}, to);
    compare(name + " query's gradient", query, reference.d_query, close);
    compare(name + " key's gradient", key, reference.d_key, close);
    compare(name + " value's gradient", value, reference.d_value, close);
    compare(name + " bias's gradient", bias, reference.d_bias, close);
    compare(name + " delta", delta, reference.delta, close);
}

template <class T>
void check_traced(const Kernels& kernels, const Problem& p, const std::string& name, double exact, double close) {
    Arguments<T> arguments(p);
    const Reference& reference = reference_of(p);
    std::vector<T> output = nan_filled<T>(p.rows() * p.value_dim), sums = nan_filled<T>(2 * p.rows());
    kernels.traced(arguments.inputs, arguments.score, output.data(), sums.data());
    compare(name + " output", output, reference.output, exact);
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()), value = nan_filled<T>(p.value.size());
    std::vector<T> delta = nan_filled<T>(p.rows()), bias(p.bias.size(), 0);
    Gradients to{query.data(), key.data(), value.data(), nullptr, delta.data(), bias.data(), static_cast<Index>(bias.size())};
    kernels.traced_gradients(arguments.inputs, arguments.score, {}, {output.data(), sums.data(), arguments.upstream.data()}, to);
    compare(name + " query's gradient", query, reference.d_query, close);
    compare(name + " key's gradient", key, reference.d_key, close);
    compare(name + " value's gradient", value, reference.d_value, close);
    compare(name + " bias's gradient", bias, reference.d_bias, close);
}

// Forward mode and the derivative of the backward pass, against central differences of the reference.
template <class T>
void check_derivatives(const Kernels& kernels, const Problem& p, const std::string& name, double close) {
    constexpr double STEP = 1e-4;
    Problem moved = p;  // by other numbers of the same kind, which are the directions
    std::rotate(moved.query.begin(), moved.query.begin() + 1, moved.query.end());
    std::reverse(moved.key.begin(), moved.key.end()), std::reverse(moved.value.begin(), moved.value.end());
    std::reverse(moved.bias.begin(), moved.bias.end()), std::reverse(moved.sink.begin(), moved.sink.end());
    auto at = [&](double step) {
        Problem there = p;
        auto move = [step](Numbers& to, const Numbers& direction) {
            for (std::size_t i = 0; i < to.size(); i++) to[i] += step * direction[i];
        };
        move(there.query, moved.query), move(there.key, moved.key), move(there.value, moved.value);
        move(there.bias, moved.bias), move(there.sink, moved.sink);
        return Reference(there);
    };
    const auto& [ahead, behind] = remembered(p.name, [&] { return std::pair(at(STEP), at(-STEP)); });
    auto derivative = [](const Numbers& one, const Numbers& other) {
        Numbers result;
        for (std::size_t i = 0; i < one.size(); i++) result.push_back((one[i] - other[i]) / (2 * STEP));
        return result;
    };
    Arguments<T> arguments(p), to_arguments(moved);
    const Inputs &in = arguments.inputs, &to = to_arguments.inputs;
    Directions directions{to.query, to.key, to.value, to.bias, to.sink};
    std::vector<T> output = nan_filled<T>(p.rows() * p.value_dim), sums = nan_filled<T>(2 * p.rows()),
                   tangent = nan_filled<T>(p.rows() * p.value_dim), mean = nan_filled<T>(p.rows());
    kernels.tangent(in, arguments.score, directions, {output.data(), sums.data(), tangent.data(), nullptr}, false);
    compare(name + " tangent", tangent, derivative(ahead.output, behind.output), close);
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()), value = nan_filled<T>(p.value.size());
    std::vector<T> bias(p.bias.size(), 0), of_output = nan_filled<T>(p.rows() * p.value_dim);
    Gradients gradients{query.data(), key.data(), value.data(), nullptr, nullptr, bias.data(), static_cast<Index>(bias.size())};
    kernels.second(in, arguments.score, {output.data(), sums.data(), arguments.upstream.data()}, directions, gradients,
                   of_output.data(), mean.data(), true);
    compare(name + " tangent of the second", of_output, derivative(ahead.output, behind.output), close);
    compare(name + " query's second", query, derivative(ahead.d_query, behind.d_query), close);
    compare(name + " key's second", key, derivative(ahead.d_key, behind.d_key), close);
    compare(name + " value's second", value, derivative(ahead.d_value, behind.d_value), close);
    compare(name + " bias's second", bias, derivative(ahead.d_bias, behind.d_bias), close);
}

// A problem under one of the normalizers that are not a softmax. Biases are so large that no row's sum is near 0, and scores so small that
// float32 resolves how far they are above a threshold.
template <class T>
void check_normalized(const Kernels& kernels, Problem p, const std::string& name, Normalizer kind, double alpha, double exact,
                      double close) {
    for (double& bias : p.bias) bias += kind == Normalizer::sum ? 64 : 0;
    for (Numbers* numbers : {&p.weight, &p.query})
        for (double& number : *numbers) number *= p.form == Form::additive && numbers == &p.query ? 1 : 0.25;
    for (double& number : p.key) number *= p.form == Form::program ? 0.25 : 1;
    Arguments<T> arguments(p);
    arguments.inputs.sink = arguments.inputs.inverse_temperature = nullptr;
    const auto& [scores, reference] = remembered(p.name + std::to_string(static_cast<int>(kind)) + std::to_string(alpha), [&] {
        Reference scores(p);
        NormalizedReference reference(p, scores.scores, kind, alpha);
        scores.score_gradients(p, reference.d_scores);
        return std::pair(scores, reference);
    });
    std::vector<double> alphas(static_cast<std::size_t>(p.batch), alpha);
    Normalization by{kind, alphas.data()};
    std::vector<T> output = nan_filled<T>(p.rows() * p.value_dim), sums = nan_filled<T>(p.rows() * (SPARSE_SUMS + 2 * p.value_dim));
    kernels.normalized(arguments.inputs, arguments.score, by, output.data(), sums.data());
    compare(name + " output", output, reference.output, exact);
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()), value = nan_filled<T>(p.value.size());
    std::vector<T> weight = nan_filled<T>(p.weight.size()), delta = nan_filled<T>(p.rows()), bias(p.bias.size(), 0);
    Gradients to{query.data(), key.data(), value.data(), weight.data(), delta.data(), bias.data(), static_cast<Index>(bias.size())};
    SavedDotForward saved{output.data(), sums.data(), arguments.upstream.data()};
    if (p.form == Form::program)
        kernels.traced_gradients(arguments.inputs, arguments.score, by, saved, to);
    else
        kernels.normalized_gradients(arguments.inputs, arguments.score, by, saved, to);
    compare(name + " query's gradient", query, scores.d_query, close);
    compare(name + " key's gradient", key, scores.d_key, close);
    compare(name + " value's gradient", value, reference.d_value, close);
    if (p.form == Form::additive) compare(name + " weight's gradient", weight, scores.d_weight, close);
    compare(name + " bias's gradient", bias, reference.d_scores, close);
}

template <class T>
void check_normalizers(const Kernels& kernels, const Problem& p, const std::string& name, double exact, double close) {
    check_normalized<T>(kernels, p, name + " sigmoid", Normalizer::sigmoid, 0, exact, close);
    check_normalized<T>(kernels, p, name + " sum", Normalizer::sum, 0, exact, close);
    for (double alpha : {1.25, 1.3, 1.5, 1.75, 2.0})
        check_normalized<T>(kernels, p, name + " entmax " + std::to_string(alpha), Normalizer::entmax, alpha, exact, close);
}

template <class T>
void check_scores(const Kernels& kernels, const Problem& p, const std::string& name, double exact, double close) {
    Arguments<T> arguments(p);
    Reference reference = reference_of(p);
    arguments.inputs.mask = {};
    std::vector<T> scores = nan_filled<T>(p.pairs());
    kernels.additive_scores(arguments.inputs, arguments.score, scores.data());
    compare(name + " scores", scores, reference.scores, exact);
    reference.score_gradients(p, p.bias);  // any numbers serve as upstream gradient
    std::vector<T> query = nan_filled<T>(p.query.size()), key = nan_filled<T>(p.key.size()),
                   weight = nan_filled<T>(p.weight.size());
    Gradients to{query.data(), key.data(), nullptr, weight.data(), nullptr, nullptr, 0};
    kernels.additive_scores_gradients(arguments.inputs, arguments.score, arguments.bias.data(), to);
    compare(name + " scores' gradient to query", query, reference.d_query, close);
    compare(name + " scores' gradient to key", key, reference.d_key, close);
    compare(name + " scores' gradient to weight", weight, reference.d_weight, close);
}

// Two sets of keys: the one before each query, and all whose number leaves the query's own remainder by 3.
struct KeyNeighbours {
    std::vector<Index> entries, none, first, stop, keys, query_ids, key_ids;
    std::vector<KeySet> sets;

    explicit KeyNeighbours(const Problem& p) : entries(p.batch, 0), none(p.queries, 0), keys(p.queries, p.keys) {
        for (Index i = 0; i < p.queries; i++) first.push_back(i - 1), stop.push_back(i), query_ids.push_back(i % 3);
        for (Index j = 0; j < p.keys; j++) key_ids.push_back(j % 3);
        sets = {{column(first), column(stop), {}, {}}, {column(none), column(keys), column(query_ids), column(key_ids)}};
    }

    Matrix column(const std::vector<Index>& numbers) const { return {numbers.data(), Kind::integer, entries.data(), 1, 1}; }

    Numbers masses(const Problem& p, const Reference& reference) const {
        Numbers result;
        for (Index row = 0; row < p.rows(); row++) {
            Index i = row % p.queries;
            const double* weight = &reference.weights[row * p.keys];
            double same = 0;
            for (Index j = i % 3; j < p.keys; j += 3) same += weight[j];
            result.push_back(i > 0 && i - 1 < p.keys ? weight[i - 1] : 0), result.push_back(same);
        }
        return result;
    }
};

template <class T>
void check_summary(const Kernels& kernels, const Problem& p, const std::string& name, double exact) {
    constexpr Index TOP = 5, CELLS = 3;
    Arguments<T> arguments(p);
    const Reference& reference = reference_of(p);
    std::vector<Index> row_edges, key_edges;
    for (Index c = 0; c <= CELLS; c++) row_edges.push_back(p.queries * c / CELLS), key_edges.push_back(p.keys * c / CELLS);
    Statistics expected(p, reference, TOP, row_edges, key_edges);
    std::vector<T> log_sum_exp = nan_filled<T>(p.rows()), entropy = nan_filled<T>(p.rows()),
                   received = nan_filled<T>(p.batch * p.keys), top = nan_filled<T>(p.rows() * TOP);
    std::vector<T> mean = nan_filled<T>(p.batch * CELLS * CELLS), maximum = mean, output = nan_filled<T>(p.rows() * p.value_dim);
    std::vector<std::int32_t> top_keys(top.size(), -2);
    std::vector<T> masses = nan_filled<T>(p.rows() * 2);
    KeyNeighbours sets(p);
    Summary to{log_sum_exp.data(), entropy.data(), received.data(), top.data(), top_keys.data(), TOP,
               row_edges.data(),   key_edges.data(), CELLS,          CELLS,      mean.data(),     maximum.data(),
               output.data(),      sets.sets.data(), 2,              masses.data(), {}, nullptr, nullptr};
    kernels.summary(arguments.inputs, arguments.score, to);
    compare(name + " summary lse", log_sum_exp, reference.log_sum_exp, exact);
    compare(name + " summary entropy", entropy, expected.entropy, exact);
    compare(name + " summary received", received, expected.received, exact);
    compare(name + " summary top weights", top, expected.top_weights, exact);
    compare(name + " summary top keys", top_keys, expected.top_keys, 0);
    compare(name + " summary map's mean", mean, expected.map_mean, exact);
    compare(name + " summary map's maximum", maximum, expected.map_max, exact);
    compare(name + " summary output", output, reference.output, exact);
    compare(name + " summary masses", masses, sets.masses(p, reference), exact);
}

template <class T>
void check_kernels(const Kernels& kernels, const Problem& problem, const std::string& name) {
    double exact = sizeof(T) == 4 ? 1e-5 : 1e-12, close = sizeof(T) == 4 ? 1e-4 : 1e-10;
    if (problem.form == Form::additive) {
        check_additive<T>(kernels, problem, name, exact, close);
        check_scores<T>(kernels, problem, name, exact, close);
    } else if (problem.form == Form::program) {
        check_traced<T>(kernels, problem, name, exact, close);
    } else {
        check_dot<T>(kernels, problem, name, exact, close);
        check_derivatives<T>(kernels, problem, name, std::fmax(close, 1e-6));
    }
    check_normalizers<T>(kernels, problem, name, exact, close);
    if (problem.form != Form::program) check_summary<T>(kernels, problem, name, exact);
}

void check_level(const Level& level) {
    int compared_before = comparisons, failed_before = failures;
    const Index shapes[][5] = {{1, 1, 1, 1, 1},      {2, 5, 7, 3, 2},     {1, 33, 65, 17, 9},
                               {3, 40, 130, 36, 20}, {1, 1, 200, 64, 70}, {1, 70, 70, 8, 33}};
    const char* activations[] = {"tanh", "sigmoid", "relu", "leaky relu"};
    for (const Index(&shape)[5] : shapes) {
        std::string size = std::to_string(shape[1]) + " x " + std::to_string(shape[2]) + " x " + std::to_string(shape[3]);
        for (int form = 0; form < FORMS; form++) {
            Problem problem(shape, form);
            std::string name = std::string(level.name) + ", " +
                               (form < 4    ? activations[form]
                                : form == 4 ? "dot"
                                : form == 5 ? "capped dot"
                                            : "distance program") +
                               ", " + size;
            check_kernels<float>(level.float32, problem, name + ", float:");
            check_kernels<double>(level.float64, problem, name + ", double:");
        }
    }
    using Numbers = std::vector<double>;
    auto exactly = [](const std::string& what, const Numbers& computed, const Numbers& expected) {
        compare(what, computed, expected, 1e-12);
    };
    check_pairs(*level.smoothing, level.name, exactly);
    check_wiener(*level.smoothing, level.name, exactly);
    check_segments(*level.smoothing, level.name, exactly);
    std::printf("%s: %d comparisons, %d differ\n", level.name, comparisons - compared_before, failures - failed_before);
}

}  // namespace
}  // namespace overt

int main() {
    int count = 0;
    const overt::Level* const* levels = overt::available_levels(&count);
    for (int i = 0; i < count; i++) overt::check_level(*levels[i]);
#ifdef OVERT_HAS_wide
#ifdef __x86_64__
    if (count > 1)  // it is compiled for AVX2
#endif
        overt::check_level(overt::wide::LEVEL);
#endif
    return overt::failures > 0;
}
