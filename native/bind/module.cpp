// The Python module overt._native: checks arrays, releases the GIL and runs a kernel of the current level.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attention/masks/row_ranges.hpp"
#include "bind/arrays.hpp"
#include "bind/ceilings.hpp"
#include "bind/smoothing.hpp"
#include "levels.hpp"

namespace overt {
namespace {

using Arrays = std::vector<Array>;
using Maybe = std::optional<Array>;

// The inputs that calls share.
struct Call : Shapes {
    Inputs inputs;
    Score score;
    std::vector<MaskStep> steps;
    Kind number = Kind::float32;

    // The batch is that of `like`, without its last `trailing` dimensions.
    template <class Any>
    Call(const Array& query, const Array& key, const Any& like, size_t trailing, int threads) {
        if (like.ndim() < trailing || query.ndim() < 2 || key.ndim() < 2)
            refuse("query and key with two dimensions or more", shape_of(query));
        for (size_t i = 0; i + trailing < like.ndim(); i++) batch.push_back(like.shape(i)), entries *= like.shape(i);
        inputs.batch = entries;
        inputs.queries = query.shape(query.ndim() - 2);
        inputs.keys = key.shape(key.ndim() - 2);
        inputs.head_dim = query.shape(query.ndim() - 1);
        inputs.threads = threads > 0 ? threads : 1;
        inputs.query = matrix(query, "query", inputs.queries, inputs.head_dim);
        inputs.key = matrix(key, "key", inputs.keys, inputs.head_dim, false, true);
        if (!floating(inputs.query.kind) || inputs.query.kind != inputs.key.kind)
            refuse("query and key of one floating dtype", shape_of(query) + " and " + shape_of(key) + " of other dtypes");
        number = inputs.query.kind == Kind::float64 ? Kind::float64 : Kind::float32;
    }

    void values(const Array& value) {
        if (value.ndim() < 2) refuse("value with two dimensions or more", shape_of(value));
        inputs.value_dim = value.shape(value.ndim() - 1);
        inputs.value = matrix(value, "value", inputs.keys, inputs.value_dim, false, true);
        if (inputs.value.kind != inputs.query.kind) refuse("value of the dtype of query and key", "another dtype");
    }

    void additive(const Array& weight, int activation) {
        if (activation < 0 || activation > 3) refuse("an activation from 0 to 3", std::to_string(activation));
        score.form = Form::additive;
        score.activation = static_cast<Activation>(activation);
        if (weight.ndim() < 1 || static_cast<Index>(weight.shape(weight.ndim() - 1)) != inputs.head_dim)
            refuse("weight of shape (..., D) with D = " + std::to_string(inputs.head_dim), shape_of(weight));
        if (kind_of(weight, "weight") != number) refuse("weight of the computation's dtype", "another dtype");
        if (inputs.head_dim > 1 && weight.stride(weight.ndim() - 1) != 1) refuse("weight to be contiguous", "another stride");
        score.weight = {weight.data(), number, offsets_of(weight, 1, "weight"), 0, 1};
    }

    void dot(const double* scale, double softcap) {
        score.form = Form::dot;
        score.scale = scale;
        score.softcap = softcap;
    }

    void mask(const std::vector<int>& program, const Arrays& arrays) {
        size_t next = 0;
        int pending = 0;
        auto next_array = [&]() -> const Array& {
            if (next == arrays.size())
                refuse("one array for each leaf of a mask's program", std::to_string(arrays.size()) + " arrays");
            return arrays[next++];
        };
        for (int code : program) {
            MaskStep step{static_cast<Step>(code), {}, {}};
            if (step.step == Step::ranges) {
                step.first = column(next_array(), "the first keys", inputs.queries, Kind::integer);
                step.second = column(next_array(), "the keys' stops", inputs.queries, Kind::integer);
            } else if (step.step == Step::dense) {
                step.first = matrix(next_array(), "the mask", inputs.queries, inputs.keys, true);
                if (step.first.kind != Kind::boolean) refuse("a dense mask of dtype bool", "another dtype");
            } else if (step.step == Step::documents) {
                step.first = column(next_array(), "the queries' documents", inputs.queries, Kind::integer);
                step.second = column(next_array(), "the keys' documents", inputs.keys, Kind::integer);
            } else if (code < 0 || code > static_cast<int>(Step::inverse)) {
                refuse("steps from 0 to 5 in a mask's program", std::to_string(code));
            }
            int needs = step.step == Step::both || step.step == Step::either ? 2 : step.step == Step::inverse ? 1 : 0;
            if (pending < needs) refuse("each step of a mask's program after the results that it combines", "too few results");
            pending += 1 - needs;
            if (pending > MASK_DEPTH - 1)
                refuse("a mask's program with at most " + std::to_string(MASK_DEPTH - 1) + " pending results", "more");
            steps.push_back(step);
        }
        if (pending != (program.empty() ? 0 : 1) || next != arrays.size())
            refuse("a mask's program that ends with one result and uses all arrays", std::to_string(pending) + " results");
        inputs.mask = {steps.data(), static_cast<int>(steps.size())};
    }

    // A bias by distance holds the bias of j - i at index j - i + Q - 1: a matrix whose rows begin one number earlier each.
    void bias(const Maybe& array, bool by_distance) {
        if (!array) return;
        if (!by_distance) {
            inputs.bias = matrix(*array, "bias", inputs.queries, inputs.keys, true);
        } else {
            size_t last = array->ndim() - 1;
            Index length = max_of(inputs.queries + inputs.keys - 1, Index{0});
            if (array->ndim() < 1 || static_cast<Index>(array->shape(last)) != length)
                refuse("a bias by distance of shape (..., Q + K - 1) = (..., " + std::to_string(length) + ")", shape_of(*array));
            Index step = array->stride(last);
            const Index* starts = offsets_of(*array, 1, "bias");
            for (Index& offset : offsets.back()) offset += (inputs.queries - 1) * step;
            inputs.bias = {array->data(), kind_of(*array, "bias"), starts, -step, step};
        }
        if (!floating(inputs.bias.kind)) refuse("a bias of floating dtype", "another dtype");
    }

    void bias_gradient(const Maybe& bias, const std::optional<Out>& d_bias, Gradients& to) {
        if (!d_bias) return;
        if (!bias || bias->ndim() != d_bias->ndim() || shape_of(*bias) != shape_of(*d_bias))
            refuse("d_bias of the shape of the bias", shape_of(*d_bias));
        Index step = 1;
        for (size_t i = d_bias->ndim(); i-- > 0; step *= d_bias->shape(i))
            if (d_bias->shape(i) != 1 && (d_bias->stride(i) != step || bias->stride(i) != step) && d_bias->size())
                refuse("bias and d_bias to be contiguous where the gradient is wanted", "other strides");
        if (kind_of(*d_bias, "d_bias") != number) refuse("d_bias of the computation's dtype", "another dtype");
        to.bias = distinct_memory(*d_bias, "d_bias"), to.bias_size = d_bias->size();
    }

    void softmax(const Maybe& sink, const Maybe& inverse_temperature) {
        inputs.sink = per_entry(sink, "sink");
        inputs.inverse_temperature = per_entry(inverse_temperature, "inverse_temperature");
    }

    void dropout(double probability, std::uint64_t seed) {
        if (!(probability >= 0 && probability <= 1)) refuse("a probability for dropout", std::to_string(probability));
        inputs.dropout = probability;
        inputs.seed = seed;
    }

    // The arguments that additive attention and dot products have in common.
    void attend(const Array& value, const std::vector<int>& program, const Arrays& arrays, const Maybe& added, bool by_distance,
                const Maybe& sink, const Maybe& inverse_temperature, double probability, std::uint64_t seed) {
        values(value);
        mask(program, arrays);
        bias(added, by_distance);
        softmax(sink, inverse_temperature);
        dropout(probability, seed);
    }

    // Runs a kernel, without the GIL. Python runs the handlers of signals in its main thread alone, so only there a signal ends it.
    template <class Work>
    void run(Work work) {
        Interruption interruption{signal_raised};
        if (in_main_thread()) inputs.interruption = &interruption;
        {
            nb::gil_scoped_release released;
            RowRanges read(inputs.mask, inputs.batch, inputs.queries, inputs.keys);
            inputs.mask = read.mask();
            work(number == Kind::float64 ? current_level().float64 : current_level().float32);
        }
        if (interruption.stopped) throw nb::python_error();
    }

    // Runs the handlers of signals that have come; whether one raised an exception, which is KeyboardInterrupt for Ctrl-C.
    static bool signal_raised() {
        nb::gil_scoped_acquire acquired;
        return PyErr_CheckSignals() != 0;
    }

    static bool in_main_thread() {
        static const auto main = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
        return PyThread_get_thread_ident() == main;
    }

    static Index max_of(Index a, Index b) { return a > b ? a : b; }
};

void additive(const Array& query, const Array& key, const Array& value, const Array& weight, int activation,
              const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
              const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads, Out output, Out log_sum_exp) {
    Call call(query, key, output, 2, threads);
    call.additive(weight, activation);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, dropout, seed);
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* sums = call.out(log_sum_exp, "log_sum_exp", {call.inputs.queries}, call.number);
    call.run([&](const Kernels& kernels) { kernels.additive(call.inputs, call.score, to, sums); });
}

void additive_gradients(const Array& query, const Array& key, const Array& value, const Array& weight, int activation,
                        const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance,
                        const Maybe& sink, const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads,
                        const Array& output, const Array& log_sum_exp, const Array& upstream, Out d_query, Out d_key, Out d_value,
                        Out d_weight, Out delta, std::optional<Out> d_bias) {
    Call call(query, key, output, 2, threads);
    call.additive(weight, activation);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, dropout, seed);
    const Inputs& in = call.inputs;
    SavedForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                       call.input(log_sum_exp, "log_sum_exp", {in.queries}, call.number),
                       call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, in.head_dim}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number),
                 call.out(d_weight, "d_weight", {in.head_dim}, call.number),
                 call.out(delta, "delta", {in.queries}, call.number), nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    call.run([&](const Kernels& kernels) { kernels.additive_gradients(in, call.score, saved, to); });
}

void dot(const Array& query, const Array& key, const Array& value, double scale, double softcap, const std::vector<int>& program,
         const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink, const Maybe& inverse_temperature,
         double dropout, std::uint64_t seed, int threads, Out output, std::optional<Out> sums) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, dropout, seed);
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* saved_sums = sums ? call.out(*sums, "sums", {2, call.inputs.queries}, call.number) : nullptr;
    call.run([&](const Kernels& kernels) { kernels.dot(call.inputs, call.score, to, saved_sums); });
}

void dot_gradients(const Array& query, const Array& key, const Array& value, double scale, double softcap,
                   const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
                   const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads, const Array& output,
                   const Array& sums, const Array& upstream, Out d_query, Out d_key, Out d_value, std::optional<Out> delta,
                   std::optional<Out> d_bias) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, dropout, seed);
    const Inputs& in = call.inputs;
    SavedDotForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                     call.input(sums, "sums", {2, in.queries}, call.number),
                     call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, in.head_dim}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number), nullptr,
                 delta ? call.out(*delta, "delta", {in.queries}, call.number) : nullptr, nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    call.run([&](const Kernels& kernels) { kernels.dot_gradients(in, call.score, saved, to); });
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
             const Maybe& sink, const Maybe& inverse_temperature, int threads, Out log_sum_exp, Out entropy, Out received,
             Out top_weights, Out top_keys, const Maybe& row_edges, const Maybe& key_edges, std::optional<Out> map_mean,
             std::optional<Out> map_max, std::optional<Out> output, const std::vector<bool>& have_ids, const Arrays& sets,
             std::optional<Out> masses) {
    Call call(query, key, log_sum_exp, 1, threads);
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
    Summary to{};
    to.log_sum_exp = call.out(log_sum_exp, "log_sum_exp", {in.queries}, call.number);
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
    call.run([&](const Kernels& kernels) { kernels.summary(in, call.score, to); });
}

std::vector<std::string> names_of_levels() {
    int count = 0;
    const Level* const* levels = available_levels(&count);
    std::vector<std::string> names;
    for (int i = 0; i < count; i++) names.push_back(levels[i]->name);
    return names;
}

void use(const std::string& name) {
    if (!use_level(name.c_str())) refuse("a level that this machine can run", name);
}

}  // namespace
}  // namespace overt

NB_MODULE(_native, module) {
    using namespace overt;
    using namespace nanobind::literals;
    module.doc() = "Attention kernels for the CPU; overt.native checks their arguments.";
    bind_ceilings(module);
    bind_smoothing(module);
    module.def("levels", names_of_levels);
    module.def("level", [] { return std::string(current_level().name); });
    module.def("use", use, "level"_a);
    module.def("additive", additive, "query"_a, "key"_a, "value"_a, "weight"_a, "activation"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "log_sum_exp"_a);
    module.def("additive_gradients", additive_gradients, "query"_a, "key"_a, "value"_a, "weight"_a, "activation"_a, "program"_a,
               "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "log_sum_exp"_a, "upstream"_a, "d_query"_a, "d_key"_a, "d_value"_a, "d_weight"_a, "delta"_a,
               "d_bias"_a.none());
    module.def("dot", dot, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a, "bias"_a.none(),
               "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a, "threads"_a, "output"_a,
               "sums"_a.none());
    module.def("dot_gradients", dot_gradients, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "sums"_a, "upstream"_a, "d_query"_a, "d_key"_a, "d_value"_a, "delta"_a.none(),
               "d_bias"_a.none());
    module.def("additive_scores", additive_scores, "query"_a, "key"_a, "weight"_a, "activation"_a, "threads"_a, "scores"_a);
    module.def("additive_scores_gradients", additive_scores_gradients, "query"_a, "key"_a, "weight"_a, "activation"_a, "threads"_a,
               "upstream"_a, "d_query"_a, "d_key"_a, "d_weight"_a);
    module.def("summary", summary, "query"_a, "key"_a, "value"_a.none(), "weight"_a.none(), "activation"_a, "scale"_a.none(),
               "softcap"_a, "program"_a, "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(),
               "inverse_temperature"_a.none(), "threads"_a, "log_sum_exp"_a, "entropy"_a, "received"_a, "top_weights"_a,
               "top_keys"_a, "row_edges"_a.none(), "key_edges"_a.none(), "map_mean"_a.none(), "map_max"_a.none(),
               "output"_a.none(), "have_ids"_a, "sets"_a, "masses"_a.none());
}
