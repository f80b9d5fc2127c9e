// A call of an attention kernel: code shared by the functions of the Python module.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "attention/masks/row_ranges.hpp"
#include "attention/programs/program.hpp"
#include "bind/arrays.hpp"
#include "levels.hpp"

namespace overt {

using Arrays = std::vector<Array>;
using Maybe = std::optional<Array>;

// The inputs that calls share.
struct Call : Shapes {
    Inputs inputs;
    Score score;
    Normalization by;
    std::vector<MaskStep> steps;
    Program program;
    Kind number = Kind::float32;

    // The batch is `like`'s, without its last `trailing` dimensions. Keys are of the query's dtype, or int8 codes.
    template <class Any>
    Call(const Array& query, const Array& key, const Any& like, size_t trailing, int threads, bool same_columns = true, bool codes = false) {
        if (like.ndim() < trailing || query.ndim() < 2 || key.ndim() < 2)
            refuse("query and key with two dimensions or more", shape_of(query));
        for (size_t i = 0; i + trailing < like.ndim(); i++) batch.push_back(like.shape(i)), entries *= like.shape(i);
        inputs.batch = entries;
        inputs.queries = query.shape(query.ndim() - 2);
        inputs.keys = key.shape(key.ndim() - 2);
        inputs.head_dim = query.shape(query.ndim() - 1);
        inputs.threads = threads > 0 ? threads : 1;
        inputs.query = matrix(query, "query", inputs.queries, inputs.head_dim);
        inputs.key = matrix(key, "key", inputs.keys, same_columns ? inputs.head_dim : -1, false, true);
        if (codes && inputs.key.kind != Kind::int8) refuse("codes of dtype int8", "another dtype");
        if (!floating(inputs.query.kind) || (!codes && inputs.query.kind != inputs.key.kind))
            refuse("query and key of one floating dtype", shape_of(query) + " and " + shape_of(key) + " of other dtypes");
        number = inputs.query.kind == Kind::float64 ? Kind::float64 : Kind::float32;
    }

    void values(const Array& value) {
        if (value.ndim() < 2) refuse("value with two dimensions or more", shape_of(value));
        inputs.value_dim = value.shape(value.ndim() - 1);
        inputs.value = matrix(value, "value", inputs.keys, inputs.value_dim, false, true);
        if (inputs.value.kind != inputs.key.kind) refuse("value of the dtype of the key", "another dtype");
    }

    // Codes in a matrix unit's order: of `keys` keys, rounded up to whole groups of 16, contiguous in memory.
    void weave(Index keys) {
        constexpr Index GROUP = 16, VECTOR = 64, MOST = 1024;
        const Index head_dim = inputs.head_dim, value_dim = inputs.value_dim;
        if (head_dim % VECTOR || value_dim % VECTOR || head_dim > MOST)
            refuse("64 features of woven codes or a multiple, and of keys at most 1024", std::to_string(head_dim) + " and " + std::to_string(value_dim));
        if (keys < 0 || (keys + GROUP - 1) / GROUP * GROUP != inputs.keys || inputs.key.row != head_dim || inputs.value.row != value_dim)
            refuse("woven codes of whole groups of 16 keys without gaps", std::to_string(inputs.keys) + " for " + std::to_string(keys) + " scales");
        inputs.keys = keys, inputs.key.kind = inputs.value.kind = Kind::woven;
    }

    // The factors of the codes of keys or values: (..., K, 1).
    Matrix scale_of_codes(const Array& scale, const char* name) {
        Matrix result = matrix(scale, name, inputs.keys, 1, false, true);
        if (result.kind != Kind::float32) refuse(std::string(name) + " of dtype float32", "another dtype");
        return result;
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

    void traced(const Array& key, const Array& constants, const std::vector<int>& code, const std::vector<double>& call_numbers) {
        program.key_columns = static_cast<Index>(key.shape(key.ndim() - 1));
        if (constants.ndim() < 1) refuse("constants of one dimension or more", shape_of(constants));
        program.constant_count = static_cast<Index>(constants.shape(constants.ndim() - 1));
        if (kind_of(constants, "constants") != number || inputs.query.kind != number) refuse("a program's inputs of one dtype", "another dtype");
        if (program.constant_count > 1 && constants.stride(constants.ndim() - 1) != 1) refuse("constants to be contiguous", "another stride");
        program.constants = {constants.data(), number, offsets_of(constants, 1, "constants"), 0, 1};
        program.numbers = call_numbers;
        const char* wrong = read_program(code, inputs.head_dim, program);
        if (wrong) refuse(wrong, "another program");
        score.scale = same_for_entries(1);
        score.form = Form::program, score.program = &program;
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
            } else if (step.step == Step::blocks) {
                const Array &table = next_array(), &sizes = next_array();
                step = blocks(table, sizes);
            } else if (code < 0 || code > static_cast<int>(Step::blocks)) {
                refuse("steps from 0 to 6 in a mask's program", std::to_string(code));
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

    MaskStep blocks(const Array& table, const Array& sizes) {
        if (sizes.ndim() != 1 || sizes.shape(0) != 2 || sizes.stride(0) != 1 || kind_of(sizes, "the sizes of blocks") != Kind::integer)
            refuse("the sizes of blocks as two contiguous int64", shape_of(sizes));
        const Index* size = static_cast<const Index*>(sizes.data());
        if (size[0] < 1 || size[1] < 1) refuse("blocks of one query and one key or more", "a smaller block");
        auto count = [](Index length, Index each) { return length / each + (length % each != 0); };
        MaskStep step{Step::blocks, matrix(table, "the table of blocks", count(inputs.queries, size[0]), count(inputs.keys, size[1])), {}};
        if (step.first.kind != Kind::boolean) refuse("a table of blocks of dtype bool", "another dtype");
        step.second.data = size, step.second.kind = Kind::integer;
        return step;
    }

    // Biases of queries and of keys, whose sum is added.
    void line_biases(const Maybe& of_queries, const Maybe& of_keys) {
        if (!of_queries != !of_keys) refuse("biases of queries and of keys, or none", "one of them");
        if (!of_keys) return;
        inputs.bias_of_queries = column(*of_queries, "the bias of queries", inputs.queries, Kind::float64);
        inputs.bias_of_keys = column(*of_keys, "the bias of keys", inputs.keys, Kind::float64);
        if (by.kind != Normalizer::softmax) refuse("biases of queries and of keys under a softmax", "another normalizer");
    }

    // A bias by distance has the bias of j - i at index j - i + Q - 1: a matrix in which each row begins one number earlier.
    void bias(const Maybe& array, bool by_distance) {
        if (array) inputs.bias = bias_of(*array, by_distance);
    }

    Matrix bias_of(const Array& array, bool by_distance) {
        Matrix bias;
        if (!by_distance) {
            bias = matrix(array, "bias", inputs.queries, inputs.keys, true);
        } else {
            size_t last = array.ndim() - 1;
            Index length = max_of(inputs.queries + inputs.keys - 1, Index{0});
            if (array.ndim() < 1 || static_cast<Index>(array.shape(last)) != length)
                refuse("a bias by distance of shape (..., Q + K - 1) = (..., " + std::to_string(length) + ")", shape_of(array));
            Index step = array.stride(last);
            const Index* starts = offsets_of(array, 1, "bias");
            for (Index& offset : offsets.back()) offset += (inputs.queries - 1) * step;
            bias = {array.data(), kind_of(array, "bias"), starts, -step, step};
        }
        if (!floating(bias.kind)) refuse("a bias of floating dtype", "another dtype");
        return bias;
    }

    // The directions (tangents) of the inputs, each of its input's shape; None for a tangent of 0.
    Directions directions(const Maybe& query, const Maybe& key, const Maybe& value, const Maybe& bias, bool by_distance,
                          const Maybe& sink) {
        Directions to;
        if (query) to.query = matrix(*query, "the query's direction", inputs.queries, inputs.head_dim);
        if (key) to.key = matrix(*key, "the key's direction", inputs.keys, inputs.head_dim, false, true);
        if (value) to.value = matrix(*value, "the value's direction", inputs.keys, inputs.value_dim, false, true);
        if (bias) to.bias = bias_of(*bias, by_distance);
        if ((bias && !inputs.bias.data) || (sink && !inputs.sink)) refuse("directions of inputs that there are", "another direction");
        for (Kind kind : {to.query.kind, to.key.kind, to.value.kind})
            if (!floating(kind)) refuse("directions of floating dtype", "another dtype");
        to.sink = per_entry(sink, "the sink's direction");
        return to;
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

    // An alpha for each entry, else one for all.
    void normalizer(int kind, double alpha, const Maybe& alphas) {
        int last = static_cast<int>(score.form == Form::program ? Normalizer::identity : Normalizer::entmax);
        if (kind < 0 || kind > last) refuse("a normalizer from 0 to " + std::to_string(last), std::to_string(kind));
        by.kind = static_cast<Normalizer>(kind);
        if (by.kind != Normalizer::softmax && (inputs.sink || inputs.inverse_temperature))
            refuse("a sink and a temperature under a softmax only", "another normalizer");
        if (by.kind != Normalizer::entmax) return;
        by.alpha = alphas ? per_entry(alphas, "alphas") : same_for_entries(alpha);
        for (Index b = 0; b < entries; b++)
            if (!(by.alpha[b] > 1 && by.alpha[b] <= 2)) refuse("an alpha above 1 and at most 2", std::to_string(by.alpha[b]));
    }

    // The saved numbers of each row for the backward pass.
    std::vector<Index> saved_shape() const {
        if (by.kind != Normalizer::entmax) {
            if (by.kind == Normalizer::softmax && score.form == Form::additive) return {inputs.queries};
            return {2, inputs.queries};
        }
        return {inputs.queries, SPARSE_SUMS + (score.form == Form::dot ? 0 : 2 * inputs.value_dim)};
    }

    void dropout(double probability, std::uint64_t seed) {
        if (!(probability >= 0 && probability <= 1)) refuse("a probability for dropout", std::to_string(probability));
        inputs.dropout = probability;
        inputs.seed = seed;
    }

    // The arguments that additive attention and dot products have in common.
    void attend(const Array& value, const std::vector<int>& program, const Arrays& arrays, const Maybe& added, bool by_distance,
                const Maybe& sink, const Maybe& inverse_temperature, int kind, double alpha,
                const Maybe& alphas, double probability, std::uint64_t seed) {
        values(value);
        mask(program, arrays);
        bias(added, by_distance);
        softmax(sink, inverse_temperature);
        normalizer(kind, alpha, alphas);
        dropout(probability, seed);
    }

    // Runs a kernel without the GIL. Python runs signal handlers only in its main thread, so only there a signal ends the call.
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

}  // namespace overt
