// Attention in forward mode, and the derivative of its backward pass: of dot products, and of programs whose columns hold directions too.
#include "bind/derivatives.hpp"

#include "bind/call.hpp"

namespace overt {
namespace {

constexpr int SOFTMAX = static_cast<int>(Normalizer::softmax);

void run_tangent(Call& call, const Directions& directions, const Out& output, const Out& sums, const Out& tangent) {
    const Inputs& in = call.inputs;
    Tangents to{call.out(output, "output", {in.queries, in.value_dim}, call.number), call.out(sums, "sums", {2, in.queries}, call.number),
                call.out(tangent, "tangent", {in.queries, in.value_dim}, call.number), nullptr};
    call.run([&](const Kernels& kernels) { kernels.tangent(in, call.score, directions, to, false); });
}

void run_second(Call& call, const Directions& directions, const Array& output, const Array& sums, const Array& upstream,
                const Gradients& to, const Out& tangent, const Out& mean, bool known) {
    const Inputs& in = call.inputs;
    SavedDotForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                          call.input(sums, "sums", {2, in.queries}, call.number),
                          call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    void* of_output = call.out(tangent, "tangent", {in.queries, in.value_dim}, call.number);
    void* of_rows = call.out(mean, "mean", {in.queries}, call.number);
    call.run([&](const Kernels& kernels) { kernels.second(in, call.score, saved, directions, to, of_output, of_rows, known); });
}

void dot_tangent(const Array& query, const Array& key, const Array& value, double scale, double softcap,
                 const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
                 const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads, const Maybe& to_query,
                 const Maybe& to_key, const Maybe& to_value, const Maybe& to_bias, const Maybe& to_sink, Out output, Out sums,
                 Out tangent) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, SOFTMAX, 0, {}, dropout, seed);
    run_tangent(call, call.directions(to_query, to_key, to_value, to_bias, by_distance, to_sink), output, sums, tangent);
}

void dot_second(const Array& query, const Array& key, const Array& value, double scale, double softcap,
                const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
                const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads, const Maybe& to_query,
                const Maybe& to_key, const Maybe& to_value, const Maybe& to_bias, const Maybe& to_sink, const Array& output,
                const Array& sums, const Array& upstream, std::optional<Out> d_query, std::optional<Out> d_key,
                std::optional<Out> d_value, std::optional<Out> d_bias, Out tangent, Out mean) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, SOFTMAX, 0, {}, dropout, seed);
    Directions directions = call.directions(to_query, to_key, to_value, to_bias, by_distance, to_sink);
    const Inputs& in = call.inputs;
    auto out = [&](const std::optional<Out>& array, const char* name, Index rows, Index columns) -> void* {
        return array ? call.out(*array, name, {rows, columns}, call.number) : nullptr;
    };
    Gradients to{out(d_query, "d_query", in.queries, in.head_dim), out(d_key, "d_key", in.keys, in.head_dim),
                 out(d_value, "d_value", in.keys, in.value_dim), nullptr, nullptr, nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    run_second(call, directions, output, sums, upstream, to, tangent, mean, true);
}

void move(Call& call, const Array& key, const Array& constants, const std::vector<int>& code, const std::vector<double>& numbers) {
    call.traced(key, constants, code, numbers);
    if (!call.program.moving) refuse("a program whose inputs move", "one whose inputs do not");
}

void traced_tangent(const Array& query, const Array& key, const Array& value, const Array& constants, const std::vector<int>& code,
                    const std::vector<double>& numbers, const std::vector<int>& program, const Arrays& arrays, const Maybe& bias,
                    bool by_distance, const Maybe& sink, const Maybe& inverse_temperature, double dropout, std::uint64_t seed,
                    int threads, const Maybe& to_value, const Maybe& to_bias, const Maybe& to_sink, Out output, Out sums, Out tangent) {
    Call call(query, key, output, 2, threads, false);
    move(call, key, constants, code, numbers);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, SOFTMAX, 0, {}, dropout, seed);
    run_tangent(call, call.directions({}, {}, to_value, to_bias, by_distance, to_sink), output, sums, tangent);
}

void traced_second(const Array& query, const Array& key, const Array& value, const Array& constants, const std::vector<int>& code,
                   const std::vector<double>& numbers, const std::vector<int>& program, const Arrays& arrays, const Maybe& bias,
                   bool by_distance, const Maybe& sink, const Maybe& inverse_temperature, double dropout, std::uint64_t seed,
                   int threads, const Maybe& to_value, const Maybe& to_bias, const Maybe& to_sink, const Array& output,
                   const Array& sums, const Array& upstream, Out d_query, Out d_key, Out d_value, Out d_constants,
                   std::optional<Out> d_bias, Out tangent, Out mean, bool known) {
    Call call(query, key, output, 2, threads, false);
    move(call, key, constants, code, numbers);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, SOFTMAX, 0, {}, dropout, seed);
    Directions directions = call.directions({}, {}, to_value, to_bias, by_distance, to_sink);
    const Inputs& in = call.inputs;
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, call.program.key_columns}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number),
                 call.out(d_constants, "d_constants", {call.program.constant_count}, call.number), nullptr, nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    run_second(call, directions, output, sums, upstream, to, tangent, mean, known);
}

}  // namespace

void bind_derivatives(nb::module_& module) {
    using namespace nanobind::literals;
    module.def("dot_tangent", dot_tangent, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a, "threads"_a,
               "to_query"_a.none(), "to_key"_a.none(), "to_value"_a.none(), "to_bias"_a.none(), "to_sink"_a.none(), "output"_a,
               "sums"_a, "tangent"_a);
    module.def("dot_second", dot_second, "query"_a, "key"_a, "value"_a, "scale"_a, "softcap"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a, "threads"_a,
               "to_query"_a.none(), "to_key"_a.none(), "to_value"_a.none(), "to_bias"_a.none(), "to_sink"_a.none(), "output"_a,
               "sums"_a, "upstream"_a, "d_query"_a.none(), "d_key"_a.none(), "d_value"_a.none(), "d_bias"_a.none(), "tangent"_a,
               "mean"_a);
    module.def("traced_tangent", traced_tangent, "query"_a, "key"_a, "value"_a, "constants"_a, "code"_a, "numbers"_a, "program"_a,
               "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "to_value"_a.none(), "to_bias"_a.none(), "to_sink"_a.none(), "output"_a, "sums"_a, "tangent"_a);
    module.def("traced_second", traced_second, "query"_a, "key"_a, "value"_a, "constants"_a, "code"_a, "numbers"_a, "program"_a,
               "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "to_value"_a.none(), "to_bias"_a.none(), "to_sink"_a.none(), "output"_a, "sums"_a, "upstream"_a,
               "d_query"_a, "d_key"_a, "d_value"_a, "d_constants"_a, "d_bias"_a.none(), "tangent"_a, "mean"_a,
               "known"_a);
}

}  // namespace overt
