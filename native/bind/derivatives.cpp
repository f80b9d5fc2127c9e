// Dot-product attention in forward mode, and the derivative of its backward pass.
#include "bind/derivatives.hpp"

#include "bind/call.hpp"

namespace overt {
namespace {

constexpr int SOFTMAX = static_cast<int>(Normalizer::softmax);

void dot_tangent(const Array& query, const Array& key, const Array& value, double scale, double softcap,
                 const std::vector<int>& program, const Arrays& arrays, const Maybe& bias, bool by_distance, const Maybe& sink,
                 const Maybe& inverse_temperature, double dropout, std::uint64_t seed, int threads, const Maybe& to_query,
                 const Maybe& to_key, const Maybe& to_value, const Maybe& to_bias, const Maybe& to_sink, Out output, Out sums,
                 Out tangent) {
    Call call(query, key, output, 2, threads);
    call.dot(call.same_for_entries(scale), softcap);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, SOFTMAX, 0, {}, dropout, seed);
    Directions directions = call.directions(to_query, to_key, to_value, to_bias, by_distance, to_sink);
    const Inputs& in = call.inputs;
    Tangents to{call.out(output, "output", {in.queries, in.value_dim}, call.number), call.out(sums, "sums", {2, in.queries}, call.number),
                call.out(tangent, "tangent", {in.queries, in.value_dim}, call.number), nullptr};
    call.run([&](const Kernels& kernels) { kernels.dot_tangent(in, call.score, directions, to); });
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
    SavedDotForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                          call.input(sums, "sums", {2, in.queries}, call.number),
                          call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    auto out = [&](const std::optional<Out>& array, const char* name, Index rows, Index columns) -> void* {
        return array ? call.out(*array, name, {rows, columns}, call.number) : nullptr;
    };
    Gradients to{out(d_query, "d_query", in.queries, in.head_dim), out(d_key, "d_key", in.keys, in.head_dim),
                 out(d_value, "d_value", in.keys, in.value_dim), nullptr, nullptr, nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    void* of_output = call.out(tangent, "tangent", {in.queries, in.value_dim}, call.number);
    void* of_rows = call.out(mean, "mean", {in.queries}, call.number);
    call.run([&](const Kernels& kernels) { kernels.dot_second(in, call.score, saved, directions, to, of_output, of_rows); });
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
}

}  // namespace overt
