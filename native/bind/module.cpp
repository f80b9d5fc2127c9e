// The Python module overt._native: checks arrays, releases the GIL and runs a kernel of the current level.
#include <algorithm>
#include <cmath>

#include "attention/pairs/units.hpp"
#include "bind/call.hpp"
#include "bind/ceilings.hpp"
#include "bind/derivatives.hpp"
#include "bind/smoothing.hpp"
#include "bind/traced.hpp"

namespace overt {
namespace {

void additive(const Array& query, const Array& key, const Array& value, const Array& weight, int activation,
              const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
              const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas, double dropout, std::uint64_t seed, int threads,
              Out output, Out log_sum_exp) {
    Call call(query, key, output, 2, threads);
    call.additive(weight, activation);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* saved = call.out(log_sum_exp, "log_sum_exp", call.saved_shape(), call.number);
    call.run([&](const Kernels& kernels) {
        if (call.by.kind == Normalizer::softmax) return kernels.additive(call.inputs, call.score, to, saved);
        kernels.normalized(call.inputs, call.score, call.by, to, saved);
    });
}

void additive_gradients(const Array& query, const Array& key, const Array& value, const Array& weight, int activation,
                        const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance,
                        const Maybe& sink, const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas, double dropout,
                        std::uint64_t seed, int threads, const Array& output, const Array& log_sum_exp, const Array& upstream,
                        Out d_query, Out d_key, Out d_value, Out d_weight, Out delta, std::optional<Out> d_bias) {
    Call call(query, key, output, 2, threads);
    call.additive(weight, activation);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    const Inputs& in = call.inputs;
    SavedForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                       call.input(log_sum_exp, "log_sum_exp", call.saved_shape(), call.number),
                       call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, in.head_dim}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number),
                 call.out(d_weight, "d_weight", {in.head_dim}, call.number),
                 call.out(delta, "delta", {in.queries}, call.number), nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    call.run([&](const Kernels& kernels) {
        if (call.by.kind == Normalizer::softmax) return kernels.additive_gradients(in, call.score, saved, to);
        kernels.normalized_gradients(in, call.score, call.by, {saved.output, saved.log_sum_exp, saved.upstream}, to);
    });
}

void dot(const Array& query, const Array& key, const Array& value, double scale, double softcap, const std::vector<int>& program,
         const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink, const Maybe& inverse_temperature,
         int normalizer, double alpha, const Maybe& alphas, double dropout, std::uint64_t seed, int threads, Out output, std::optional<Out> sums,
         const Maybe& bias_of_queries, const Maybe& bias_of_keys) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    call.line_biases(bias_of_queries, bias_of_keys);
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* saved_sums = sums ? call.out(*sums, "sums", call.saved_shape(), call.number) : nullptr;
    call.run([&](const Kernels& kernels) {
        if (call.by.kind != Normalizer::softmax) return kernels.normalized(call.inputs, call.score, call.by, to, saved_sums);
        auto of_unit = unit_forward_of(call.inputs);
        (of_unit ? of_unit : kernels.dot)(call.inputs, call.score, to, saved_sums);
    });
}

// A few queries against the keys and values of a rounded cache: codes, and a scale for each key. Woven codes are whole groups of keys.
void dot_codes(const Array& query, const Array& key, const Array& key_scale, const Array& value, const Array& value_scale, bool woven,
               double scale, int threads, Out output, Out sums) {
    constexpr Index DECODED = 8;
    Call call(query, key, output, 2, threads, true, true);
    call.dot(call.same_for_entries(scale), 0);
    call.values(value);
    if (woven) call.weave(key_scale.ndim() < 2 ? -1 : static_cast<Index>(key_scale.shape(key_scale.ndim() - 2)));
    call.inputs.key_scale = call.scale_of_codes(key_scale, "the keys' scale");
    call.inputs.value_scale = call.scale_of_codes(value_scale, "the values' scale");
    if (call.inputs.queries > DECODED) refuse("at most 8 queries for codes", std::to_string(call.inputs.queries));
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* saved_sums = call.out(sums, "sums", call.saved_shape(), call.number);
    auto of_unit = unit_forward_of(call.inputs);
    if (woven && !of_unit) refuse("a unit that multiplies woven codes, by bfloat16 queries", "none, or queries of another dtype");
    call.run([&](const Kernels& kernels) {
        (of_unit ? of_unit : kernels.dot)(call.inputs, call.score, to, saved_sums);
    });
}

template <class T>
void join_rows(const T* outputs, const T* sums, Index parts, Index entries, Index queries, Index columns, T* to) {
    for (Index row = 0; row < entries * queries; row++, to += columns) {
        const T* bases = sums + row / queries * 2 * queries + row % queries;  // totals come after those of all queries
        const Index step = entries * 2 * queries;
        T base = bases[0], all = 0;
        for (Index p = 1; p < parts; p++) base = bases[p * step] > base ? bases[p * step] : base;
        std::fill(to, to + columns, T(0));
        for (Index p = 0; p < parts; p++) {
            const T total = bases[p * step + queries], share = total == 0 ? T(0) : total * std::exp2(bases[p * step] - base);
            const T* from = outputs + (p * entries * queries + row) * columns;
            for (Index e = 0; e < columns; e++) to[e] += share * from[e];
            all += share;
        }
        for (Index e = 0; e < columns; e++) to[e] = all == 0 ? T(0) : to[e] / all;
    }
}

// Attention to all keys, of attention to some keys each: outputs (parts, ..., Q, E), and each row's base and total (parts, ..., 2, Q).
void join_parts(const Array& outputs, const Array& sums, Out output) {
    if (output.ndim() < 2 || outputs.ndim() != output.ndim() + 1 || !outputs.shape(0))
        refuse("outputs (parts, ..., Q, E) of an output (..., Q, E)", shape_of(outputs) + " and " + shape_of(output));
    const size_t last = output.ndim() - 1;
    const Index parts = outputs.shape(0), queries = output.shape(last - 1), columns = output.shape(last);
    const Kind number = kind_of(outputs, "outputs");
    if (number != Kind::float32 && number != Kind::float64) refuse("outputs of dtype float32 or float64", "another dtype");
    Shapes shapes;
    for (size_t i = 0; i + 2 < output.ndim(); i++) shapes.batch.push_back(output.shape(i)), shapes.entries *= output.shape(i);
    void* to = shapes.out(output, "output", {queries, columns}, number);
    shapes.batch.insert(shapes.batch.begin(), parts);
    const void *from = shapes.input(outputs, "outputs", {queries, columns}, number), *saved = shapes.input(sums, "sums", {2, queries}, number);
    auto join = [&](auto zero) {
        using T = decltype(zero);
        join_rows(static_cast<const T*>(from), static_cast<const T*>(saved), parts, shapes.entries, queries, columns, static_cast<T*>(to));
    };
    if (number == Kind::float64) join(0.0);
    else join(0.0f);
}

void dot_gradients(const Array& query, const Array& key, const Array& value, double scale, double softcap,
                   const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
                   const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas, double dropout, std::uint64_t seed,
                   int threads, const Array& output, const Array& sums, const Array& upstream, Out d_query, Out d_key, Out d_value,
                   std::optional<Out> delta, std::optional<Out> d_bias, const Maybe& bias_of_queries, const Maybe& bias_of_keys,
                   std::optional<Out> d_bias_of_keys) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    call.line_biases(bias_of_queries, bias_of_keys);
    const Inputs& in = call.inputs;
    SavedDotForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                     call.input(sums, "sums", call.saved_shape(), call.number),
                     call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, in.head_dim}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number), nullptr,
                 delta ? call.out(*delta, "delta", {in.queries}, call.number) : nullptr, nullptr, 0,
                 d_bias_of_keys ? call.out(*d_bias_of_keys, "d_bias_of_keys", {in.keys}, call.number) : nullptr};
    call.bias_gradient(bias, d_bias, to);
    call.run([&](const Kernels& kernels) {
        if (call.by.kind != Normalizer::softmax) return kernels.normalized_gradients(in, call.score, call.by, saved, to);
        const PairUnit* unit = unit_of(in);
        (unit ? unit->dot_gradients : kernels.dot_gradients)(in, call.score, saved, to);
    });
}

void additive_scores(const Array& query, const Array& key, const Array& weight, int activation, int threads, Out scores) {
    Call call(query, key, scores, 2, threads);
    call.additive(weight, activation);
    void* to = call.out(scores, "scores", {call.inputs.queries, call.inputs.keys}, call.number);
    call.run([&](const Kernels& kernels) { kernels.additive_scores(call.inputs, call.score, to); });
}

void additive_scores_gradients(const Array& query, const Array& key, const Array& weight, int activation, int threads,
                               const Array& upstream, Out d_query, Out d_key, Out d_weight) {
    Call call(query, key, upstream, 2, threads);
    call.additive(weight, activation);
    const Inputs& in = call.inputs;
    const void* from = call.input(upstream, "upstream", {in.queries, in.keys}, call.number);
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, in.head_dim}, call.number), nullptr,
                 call.out(d_weight, "d_weight", {in.head_dim}, call.number), nullptr, nullptr, 0};
    call.run([&](const Kernels& kernels) { kernels.additive_scores_gradients(in, call.score, from, to); });
}

void cells(const Maybe& edges, const char* name, Index length, const Index** to, Index* count) {
    if (!edges) return;
    if (edges->ndim() != 1 || edges->shape(0) < 1 || kind_of(*edges, name) != Kind::integer ||
        (edges->shape(0) > 1 && edges->stride(0) != 1))
        refuse(std::string(name) + " of shape (cells + 1,) and dtype int64", shape_of(*edges));
    const Index* values = static_cast<const Index*>(edges->data());
    size_t last = edges->shape(0) - 1;
    for (size_t i = 0; i < last; i++)
        if (values[i] > values[i + 1]) refuse(std::string(name) + " in ascending order", "a smaller edge after a larger one");
    if (values[0] != 0 || values[last] != length)
        refuse(std::string(name) + " from 0 to " + std::to_string(length),
               std::to_string(values[0]) + " to " + std::to_string(values[last]));
    *to = values, *count = static_cast<Index>(last);
}

// For each set whether it has ids, and its arrays: low and high, then the ids of queries and of keys.
std::vector<KeySet> key_sets(Call& call, const std::vector<bool>& have_ids, const Arrays& arrays) {
    std::vector<KeySet> sets;
    size_t next = 0, needed = 0;
    for (bool ids : have_ids) needed += ids ? 4 : 2;
    if (needed != arrays.size())
        refuse(std::to_string(needed) + " arrays for these sets of keys", std::to_string(arrays.size()) + " arrays");
    auto column = [&](const char* name, Index length) { return call.column(arrays[next++], name, length, Kind::integer); };
    for (bool ids : have_ids) {
        KeySet set;
        set.low = column("a set's first keys", call.inputs.queries);
        set.high = column("a set's stops", call.inputs.queries);
        if (ids) {
            set.query_id = column("a set's ids of queries", call.inputs.queries);
            set.key_id = column("a set's ids of keys", call.inputs.keys);
        }
        sets.push_back(set);
    }
    return sets;
}

void summary(const Array& query, const Array& key, const Maybe& value, const Maybe& weight, int activation, const Maybe& scale,
             double softcap, const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance,
             const Maybe& sink, const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas, int threads,
             std::optional<Out> log_sum_exp, Out entropy, Out received, Out top_weights, Out top_keys, const Maybe& row_edges, const Maybe& key_edges, std::optional<Out> map_mean,
             std::optional<Out> map_max, std::optional<Out> output, const std::vector<bool>& have_ids, const Arrays& sets,
             std::optional<Out> masses, std::optional<Out> support, const Maybe& bias_of_queries, const Maybe& bias_of_keys) {
    Call call(query, key, entropy, 1, threads);
    const Inputs& in = call.inputs;
    if (value) call.values(*value);
    if (weight) {
        call.additive(*weight, activation);
    } else {
        call.dot(call.per_entry(scale, "scale"), softcap);
    }
    call.mask(program, arrays);
    call.bias(bias, by_distance);
    call.softmax(sink, inverse_temperature);
    call.normalizer(normalizer, alpha, alphas);
    call.line_biases(bias_of_queries, bias_of_keys);
    Summary to{};
    if (log_sum_exp) to.log_sum_exp = call.out(*log_sum_exp, "log_sum_exp", {in.queries}, call.number);
    to.entropy = call.out(entropy, "entropy", {in.queries}, call.number);
    to.received = call.out(received, "received", {in.keys}, call.number);
    to.top = top_keys.ndim() ? static_cast<Index>(top_keys.shape(top_keys.ndim() - 1)) : 0;
    to.top_weights = call.out(top_weights, "top_weights", {in.queries, to.top}, call.number);
    if (top_keys.dtype() != nb::dtype<std::int32_t>()) refuse("top_keys of dtype int32", "another dtype");
    to.top_keys = static_cast<std::int32_t*>(call.contiguous_output(top_keys, "top_keys", {in.queries, to.top}));
    cells(row_edges, "row_edges", in.queries, &to.row_edges, &to.row_cells);
    cells(key_edges, "key_edges", in.keys, &to.key_edges, &to.key_cells);
    bool map = to.row_edges && to.key_edges && map_mean && map_max;
    if (!map && (to.row_edges || to.key_edges || map_mean || map_max))
        refuse("row_edges, key_edges, map_mean and map_max for a map", "some of them");
    if (map) {
        to.map_mean = call.out(*map_mean, "map_mean", {to.row_cells, to.key_cells}, call.number);
        to.map_max = call.out(*map_max, "map_max", {to.row_cells, to.key_cells}, call.number);
    }
    if (output && !value) refuse("a value for an output", "None");
    if (output) to.output = call.out(*output, "output", {in.queries, in.value_dim}, call.number);
    std::vector<KeySet> of_calls = key_sets(call, have_ids, sets);
    to.sets = of_calls.data(), to.set_count = static_cast<Index>(of_calls.size());
    if (of_calls.empty() != !masses) refuse("masses for sets of keys", "one without the other");
    if (masses) to.masses = call.out(*masses, "masses", {in.queries, to.set_count}, call.number);
    to.by = call.by;
    bool softmax = call.by.kind == Normalizer::softmax;
    if (softmax == support.has_value() || softmax != log_sum_exp.has_value())
        refuse("log_sum_exp under a softmax, and support under other normalizers", "other outputs");
    if (support) to.support = static_cast<std::int32_t*>(call.contiguous_output(*support, "support", {in.queries}));
    // Rows' sums by a pass over values of no features, for which any rows serve.
    Inputs first = in;
    first.value = in.key, first.value_dim = 0;
    std::vector<double> sums(softmax ? 0 : static_cast<std::size_t>(in.batch * in.queries * SPARSE_SUMS));
    to.sums = sums.data();
    call.run([&](const Kernels& kernels) {
        if (!softmax) kernels.normalized(first, call.score, call.by, nullptr, sums.data());
        kernels.summary(in, call.score, to);
    });
}

std::vector<std::string> names_of_levels() {
    int count = 0;
    const Level* const* levels = available_levels(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; i++) names.push_back(levels[i]->name);
    return names;
}

std::vector<std::string> names_of_units() {
    int count = 0;
    const PairUnit* const* units = available_units(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; i++) names.push_back(units[i]->name);
    return names;
}

// Only the best level uses a matrix unit.
void use(const std::string& name) {
    if (!use_level(name.c_str())) refuse("a level that this machine can run", name);
    use_unit(name == names_of_levels().front() ? "best" : "none");
}

void use_named_unit(const std::string& name) {
    if (!use_unit(name.c_str())) refuse("a unit that this machine can run", name);
}

}  // namespace
}  // namespace overt

NB_MODULE(_native, module) {
    using namespace overt;
    using namespace nanobind::literals;
    module.doc() = "Attention kernels for the CPU; overt.native checks their arguments.";
    bind_ceilings(module);
    bind_derivatives(module);
    bind_smoothing(module);
    bind_traced(module);
    module.def("levels", names_of_levels);
    module.def("level", [] { return std::string(current_level().name); });
    module.def("use", use, "level"_a);
    module.def("units", names_of_units);
    module.def("unit", [] { return current_unit() ? std::optional<std::string>(current_unit()->name) : std::nullopt; });
    module.def("use_unit", use_named_unit, "unit"_a);
    module.def("additive", additive, "query"_a, "key"_a, "value"_a, "weight"_a, "activation"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a,
               "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "log_sum_exp"_a);
    module.def("additive_gradients", additive_gradients, "query"_a, "key"_a, "value"_a, "weight"_a, "activation"_a, "program"_a,
               "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a,
               "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "log_sum_exp"_a, "upstream"_a, "d_query"_a, "d_key"_a, "d_value"_a, "d_weight"_a, "delta"_a,
               "d_bias"_a.none());
    module.def("dot", dot, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a, "bias"_a.none(),
               "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a,
               "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a, "threads"_a, "output"_a,
               "sums"_a.none(), "bias_of_queries"_a.none() = nb::none(), "bias_of_keys"_a.none() = nb::none());
    module.def("dot_codes", dot_codes, "query"_a, "key"_a, "key_scale"_a, "value"_a, "value_scale"_a, "woven"_a, "scale"_a, "threads"_a,
               "output"_a, "sums"_a);
    module.def("join_parts", join_parts, "outputs"_a, "sums"_a, "output"_a);
    module.def("dot_gradients", dot_gradients, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a,
               "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "sums"_a, "upstream"_a, "d_query"_a, "d_key"_a, "d_value"_a, "delta"_a.none(),
               "d_bias"_a.none(), "bias_of_queries"_a.none() = nb::none(), "bias_of_keys"_a.none() = nb::none(),
               "d_bias_of_keys"_a.none() = nb::none());
    module.def("additive_scores", additive_scores, "query"_a, "key"_a, "weight"_a, "activation"_a, "threads"_a, "scores"_a);
    module.def("additive_scores_gradients", additive_scores_gradients, "query"_a, "key"_a, "weight"_a, "activation"_a, "threads"_a,
               "upstream"_a, "d_query"_a, "d_key"_a, "d_weight"_a);
    module.def("summary", summary, "query"_a, "key"_a, "value"_a.none(), "weight"_a.none(), "activation"_a, "scale"_a.none(),
               "softcap"_a, "program"_a, "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(),
               "inverse_temperature"_a.none(), "normalizer"_a, "alpha"_a, "alphas"_a.none(), "threads"_a,
               "log_sum_exp"_a.none(), "entropy"_a, "received"_a, "top_weights"_a,
               "top_keys"_a, "row_edges"_a.none(), "key_edges"_a.none(), "map_mean"_a.none(), "map_max"_a.none(),
               "output"_a.none(), "have_ids"_a, "sets"_a, "masses"_a.none(), "support"_a.none(),
               "bias_of_queries"_a.none() = nb::none(), "bias_of_keys"_a.none() = nb::none());
}
