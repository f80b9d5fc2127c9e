#include "bind/traced.hpp"

#include "bind/call.hpp"

namespace overt {
namespace {

void traced(const Array& query, const Array& key, const Array& value, const Array& constants, const std::vector<int>& code,
            const std::vector<double>& numbers, const std::vector<int>& program, const Arrays& arrays, const Maybe& bias,
            bool by_distance, const Maybe& sink, const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas,
            double dropout, std::uint64_t seed, int threads, Out output, std::optional<Out> sums) {
    Call call(query, key, output, 2, threads, false);
    call.traced(key, constants, code, numbers);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    void* to = call.out(output, "output", {call.inputs.queries, call.inputs.value_dim}, call.number);
    void* saved_sums = sums ? call.out(*sums, "sums", call.saved_shape(), call.number) : nullptr;
    call.run([&](const Kernels& kernels) {
        if (call.by.kind == Normalizer::softmax) return kernels.traced(call.inputs, call.score, to, saved_sums);
        kernels.normalized(call.inputs, call.score, call.by, to, saved_sums);
    });
}

void traced_gradients(const Array& query, const Array& key, const Array& value, const Array& constants, const std::vector<int>& code,
                      const std::vector<double>& numbers, const std::vector<int>& program, const Arrays& arrays, const Maybe& bias,
                      bool by_distance, const Maybe& sink, const Maybe& inverse_temperature, int normalizer, double alpha, const Maybe& alphas,
                      double dropout, std::uint64_t seed, int threads, const Array& output, const Array& sums, const Array& upstream, Out d_query, Out d_key, Out d_value,
                      Out d_constants, std::optional<Out> delta, std::optional<Out> d_bias) {
    Call call(query, key, output, 2, threads, false);
    call.traced(key, constants, code, numbers);
    call.attend(value, program, arrays, bias, by_distance, sink, inverse_temperature, normalizer, alpha, alphas, dropout, seed);
    const Inputs& in = call.inputs;
    SavedDotForward saved{call.input(output, "output", {in.queries, in.value_dim}, call.number),
                     call.input(sums, "sums", call.saved_shape(), call.number),
                     call.input(upstream, "upstream", {in.queries, in.value_dim}, call.number)};
    Gradients to{call.out(d_query, "d_query", {in.queries, in.head_dim}, call.number),
                 call.out(d_key, "d_key", {in.keys, call.program.key_columns}, call.number),
                 call.out(d_value, "d_value", {in.keys, in.value_dim}, call.number),
                 call.out(d_constants, "d_constants", {call.program.constant_count}, call.number),
                 delta ? call.out(*delta, "delta", {in.queries}, call.number) : nullptr, nullptr, 0};
    call.bias_gradient(bias, d_bias, to);
    call.run([&](const Kernels& kernels) { kernels.traced_gradients(in, call.score, call.by, saved, to); });
}

}  // namespace

void bind_traced(nb::module_& module) {
    using namespace nanobind::literals;
    module.def("traced", traced, "query"_a, "key"_a, "value"_a, "constants"_a, "code"_a, "numbers"_a, "program"_a, "arrays"_a,
               "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a, "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a, "threads"_a,
               "output"_a, "sums"_a.none());
    module.def("traced_gradients", traced_gradients, "query"_a, "key"_a, "value"_a, "constants"_a, "code"_a, "numbers"_a, "program"_a,
               "arrays"_a, "bias"_a.none(), "by_distance"_a, "sink"_a.none(), "inverse_temperature"_a.none(), "normalizer"_a, "alpha"_a, "alphas"_a.none(), "dropout"_a, "seed"_a,
               "threads"_a, "output"_a, "sums"_a, "upstream"_a, "d_query"_a, "d_key"_a, "d_value"_a, "d_constants"_a,
               "delta"_a.none(), "d_bias"_a.none());
}

}  // namespace overt
