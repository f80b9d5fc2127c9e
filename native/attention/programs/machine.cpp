// The instructions of a program over pairs; machine.hpp describes their operands.
#include "attention/programs/machine.hpp"

#include "attention/programs/functions.hpp"
#include "attention/programs/simple_gradients.hpp"
#include "attention/programs/simple_sums.hpp"

// 1 if small code matters more than speed, as in a page: every strip and every sum over features uses the same general loops.
#ifndef OVERT_SMALL
#define OVERT_SMALL 0
#endif

namespace overt::OVERT_LEVEL {
namespace {

// WHOLE: the strip has all keys and lanes, so loops are unrolled.
template <class T, bool WHOLE>
class StripRun {
    using V = Vector<T>;
    static constexpr int W = WIDTH<T>;

    struct Strip {
        const Sources<T>& from;
        int first, keys, lanes;
    };
    const Program& program;
    T *value, *temporaries;
    Strip strip;

   public:
    StripRun(const Program& program, T* value, T* temporaries, const Sources<T>& from, int first, int keys, int lanes)
        : program(program), value(value), temporaries(temporaries), strip{from, first, keys, lanes} {}

    void run(const Pass& pass) {
        for (const Stage& stage : pass.stages) {
            if (stage.count > 0 && run_simple(stage)) continue;
            const Instruction *begin = stage.instructions.data(), *end = begin + stage.instructions.size();
            for (int feature = 0; feature < (stage.count > 0 ? stage.count : 1); feature++)
                for (const Instruction* next = begin; next < end; next++)
                    if (!OVERT_SMALL && next + 1 < end && meet(next[0], next[1], feature)) next++;
                    else execute(*next, feature);
        }
    }

   private:
    int keys() const { return WHOLE ? STRIP : strip.keys; }
    int lanes() const { return WHOLE ? QUERIES : strip.lanes; }

    // Of the score, or of its tangent.
    const T* gradient(Index which) const { return strip.from.gradients + (which * KEYS + strip.first) * QUERIES; }

    // An operand's vectors: of_key(c) gives a function of the lane.
    struct Rows {  // the same for all keys
        const T* data;
        auto of_key(int) const {
            return [row = data](int lane) { return load(row + lane); };
        }
    };
    struct OneForKey {
        const T* data;
        Index row;
        auto of_key(int c) const {
            return [number = broadcast(data[c * row])](int) { return number; };
        }
    };
    struct Pairs {
        const T* data;
        auto of_key(int c) const {
            return [row = data + c * QUERIES](int lane) { return load(row + lane); };
        }
    };

    static Index at(const Operand& operand, int feature) { return operand.base + static_cast<Index>(operand.step) * feature; }

    Rows rows(const Operand& query, int feature) const { return {strip.from.queries + at(query, feature) * QUERIES}; }

    Pairs pairs(const Operand& operand, int feature) const {
        if (operand.place == Place::temporary) return {temporaries + at(operand, feature) * STRIP * QUERIES};
        if (operand.place == Place::gradient) return {gradient(operand.base)};
        return {strip.from.products + (at(operand, feature) * KEYS + strip.first) * QUERIES};
    }

    template <class Work>
    void with(const Operand& operand, int feature, Work work) const {
        const Sources<T>& from = strip.from;
        Index at = this->at(operand, feature);
        switch (operand.place) {
            case Place::query: return work(rows(operand, feature));
            case Place::key: return work(OneForKey{from.keys + strip.first * from.key_row + at, from.key_row});
            case Place::constant: return work(OneForKey{from.constants + at, 0});
            case Place::number: return work(OneForKey{from.numbers + at, 0});
            default: return work(pairs(operand, feature));
        }
    }

    // value = function(value, operand), vector by vector.
    template <class Of, class Function>
    void apply(const Of& operand, Function function) {
        for (int c = 0; c < keys(); c++) {
            auto other = operand.of_key(c);
            T* to = value + c * QUERIES;
            for (int lane = 0; lane < lanes(); lane += W) store(to + lane, function(load(to + lane), other(lane)));
        }
    }

    template <class Function>
    void apply(Function function) {
        for (int c = 0; c < keys(); c++) {
            T* to = value + c * QUERIES;
            for (int lane = 0; lane < lanes(); lane += W) store(to + lane, function(load(to + lane)));
        }
    }

    // temporary = function(temporary, value)
    template <class Function>
    void update(const Operand& operand, Function function) {
        bool is_score = operand.place == Place::score;
        T* memory = is_score ? strip.from.scores + strip.first * QUERIES : temporaries + operand.base * STRIP * QUERIES;
        for (int c = 0; c < keys(); c++)
            for (int lane = 0; lane < lanes(); lane += W) {
                T* to = memory + c * QUERIES + lane;
                store(to, function(load(to), load(value + c * QUERIES + lane)));
            }
    }

    // A load and the following sum, difference or product as one step, if the first operand has a number for each query.
    bool meet(const Instruction& load, const Instruction& meets, int feature) {
        if (load.operation != Operation::load) return false;
        if (meets.operation == Operation::add) return meet(load.first, meets.first, feature, [](V a, V b) { return a + b; });
        if (meets.operation == Operation::subtract) return meet(load.first, meets.first, feature, [](V a, V b) { return a - b; });
        return meets.operation == Operation::multiply && meet(load.first, meets.first, feature, [](V a, V b) { return a * b; });
    }

    template <class Function>
    bool meet(const Operand& first, const Operand& second, int feature, Function function) {
        bool of_key = first.place == Place::key || first.place == Place::constant || first.place == Place::number;
        if (of_key) return false;
        auto run = [&](const auto& a) {
            with(second, feature, [&](const auto& b) {
                for (int c = 0; c < keys(); c++) {
                    auto one = a.of_key(c);
                    auto other = b.of_key(c);
                    for (int lane = 0; lane < lanes(); lane += W) store(value + c * QUERIES + lane, function(one(lane), other(lane)));
                }
            });
        };
        if (first.place == Place::query) run(rows(first, feature));
        else run(pairs(first, feature));
        return true;
    }

    static V truth(Whole<T> condition) { return condition ? broadcast(T(1)) : V{}; }

    void execute(const Instruction& instruction, int feature) {
        Operation operation = instruction.operation;
        if (operation >= Operation::negate && operation <= Operation::square) return unary(operation);
        switch (operation) {
            case Operation::store: return update(instruction.first, [](V, V now) { return now; });
            case Operation::add_to_sum: return update(instruction.first, [](V sum, V now) { return sum + now; });
            case Operation::raise_maximum: return update(instruction.first, [](V x, V now) { return maximum_of<T>(x, now); });
            case Operation::lower_minimum: return update(instruction.first, [](V x, V now) { return minimum_of<T>(x, now); });
            case Operation::select: return select(instruction, feature);
            case Operation::add_to: return add_gradient(instruction.first, feature, T(1));
            case Operation::subtract_from: return add_gradient(instruction.first, feature, T(-1));
            default: with(instruction.first, feature, [&](const auto& operand) { binary(operation, operand); });
        }
    }

    void unary(Operation operation) {
        switch (operation) {
            case Operation::negate: return apply([](V x) { return -x; });
            case Operation::absolute: return apply([](V x) { return absolute_value<T>(x); });
            case Operation::sign: return apply([](V x) { return sign_of<T>(x); });
            case Operation::exponential: return apply([](V x) { return exponential_of_any<T>(x); });
            case Operation::logarithm: return apply([](V x) { return natural_logarithm<T>(x); });
            case Operation::logarithm_of_one_more: return apply([](V x) { return overt::OVERT_LEVEL::logarithm_of_one_more<T>(x); });
            case Operation::exponential_less_one: return apply([](V x) { return overt::OVERT_LEVEL::exponential_less_one<T>(x); });
            case Operation::root: return apply([](V x) { return square_root(x); });
            case Operation::tangent: return apply([](V x) { return hyperbolic_tangent<T>(x); });
            case Operation::sigmoid: return apply([](V x) { return logistic<T>(x); });
            case Operation::sine: return apply([](V x) { return sine_or_cosine<T>(x, false); });
            case Operation::cosine: return apply([](V x) { return sine_or_cosine<T>(x, true); });
            case Operation::error_function: return apply([](V x) { return error_function<T>(x); });
            case Operation::arctangent: return apply([](V x) { return arctangent<T>(x); });
            default: return apply([](V x) { return x * x; });
        }
    }

    template <class Of>
    void binary(Operation operation, const Of& y) {
        switch (operation) {
            case Operation::load: return apply(y, [](V, V b) { return b; });
            case Operation::add: return apply(y, [](V a, V b) { return a + b; });
            case Operation::subtract: return apply(y, [](V a, V b) { return a - b; });
            case Operation::multiply: return apply(y, [](V a, V b) { return a * b; });
            case Operation::divide: return apply(y, [](V a, V b) { return a / b; });
            case Operation::maximum: return apply(y, [](V a, V b) { return maximum_of<T>(a, b); });
            case Operation::minimum: return apply(y, [](V a, V b) { return minimum_of<T>(a, b); });
            case Operation::above: return apply(y, [](V a, V b) { return truth(a > b); });
            case Operation::at_least: return apply(y, [](V a, V b) { return truth(a >= b); });
            case Operation::equal: return apply(y, [](V a, V b) { return truth(a == b); });
            case Operation::power: return apply(y, [](V a, V b) { return power_of<T>(a, b); });
            case Operation::subtract_from_operand: return apply(y, [](V a, V b) { return b - a; });
            case Operation::divide_operand: return apply(y, [](V a, V b) { return b / a; });
            case Operation::below: return apply(y, [](V a, V b) { return truth(a < b); });
            case Operation::at_most: return apply(y, [](V a, V b) { return truth(a <= b); });
            default: return apply(y, [](V a, V b) { return power_of<T>(b, a); });
        }
    }

    // value = value is not 0 ? first : second
    void select(const Instruction& instruction, int feature) {
        with(instruction.first, feature, [&](const auto& first) {
            with(instruction.second, feature, [&](const auto& second) {
                for (int c = 0; c < keys(); c++) {
                    auto chosen = first.of_key(c);
                    auto other = second.of_key(c);
                    T* to = value + c * QUERIES;
                    for (int lane = 0; lane < lanes(); lane += W)
                        store(to + lane, load(to + lane) != T(0) ? chosen(lane) : other(lane));
                }
            });
        });
    }

    // The value of a pair; 0 if the pair is excluded: 0 * NaN is NaN.
    V addend(int c, int lane) const {
        V now = load(value + c * QUERIES + lane);
        if (!strip.from.unmasked) return now;
        return load(strip.from.unmasked + (strip.first + c) * QUERIES + lane) == T(0) ? V{} : now;
    }

    void add_gradient(const Operand& input, int feature, T sign) {
        Index at = input.base + static_cast<Index>(input.step) * feature;
        const Sources<T>& from = strip.from;
        if (input.place == Place::query) {
            for (int lane = 0; lane < lanes(); lane += W) {
                V sum = addend(0, lane);
                for (int c = 1; c < keys(); c++) sum += addend(c, lane);
                T* to = from.d_queries + at * QUERIES + lane;
                store(to, multiply_add(sum, broadcast(sign), load(to)));
            }
        } else if (input.place == Place::product) {
            for (int c = 0; c < keys(); c++)
                for (int lane = 0; lane < lanes(); lane += W)
                    store(from.d_products + at * KEYS * QUERIES + (strip.first + c) * QUERIES + lane, addend(c, lane) * sign);
        } else {
            bool of_key = input.place == Place::key;
            for (int c = 0; c < keys(); c++) {
                V sum = addend(c, 0);
                for (int lane = W; lane < lanes(); lane += W) sum += addend(c, lane);
                T* to = of_key ? from.d_keys + (c * program.key_columns + at) * W : from.d_constants + at * W;
                store(to, multiply_add(sum, broadcast(sign), load(to)));
            }
        }
    }

    // Runs a stage that is one of the loops of simple_sums.hpp; false if it is none.
    bool run_simple(const Stage& stage) {
        if (OVERT_SMALL) return false;
        SimpleSum simple(stage);
        if (!simple.is_one || (strip.keys < STRIP && !simple.backward)) return false;
        const Sources<T>& from = strip.from;
        const T *queries = from.queries + simple.query * QUERIES, *keys = from.keys + strip.first * from.key_row + simple.key;
        T bound = simple.bound >= 0 ? from.numbers[simple.bound] : T(0);
        T* temporary = temporaries + simple.temporary * STRIP * QUERIES;
        if (!simple.backward) {
            simple_sum(simple, SumOperands<T>{queries, keys, from.key_row, from.constants + simple.weight, bound, temporary, stage.count,
                                              strip.lanes});
            return true;
        }
        const Operand& upstream = stage.instructions.back().first;
        simple_gradient(simple, GradientOperands<T>{queries, keys, from.constants + simple.weight,
                                                    upstream.place == Place::gradient ? gradient(upstream.base) : temporary,
                                                    from.unmasked ? from.unmasked + strip.first * QUERIES : nullptr, from.key_row, bound,
                                                    from.d_queries + simple.query * QUERIES, from.d_keys + simple.key * W,
                                                    from.d_constants + simple.weight * W, program.key_columns * W, stage.count,
                                                    strip.keys, strip.lanes});
        return true;
    }
};

}  // namespace

template <class T>
const T* Machine<T>::run(const Pass& pass, const Sources<T>& from, int first, int keys, int lanes) {
    if (!OVERT_SMALL && keys == STRIP && lanes == QUERIES)
        StripRun<T, true>(program, value, temporaries, from, first, keys, lanes).run(pass);
    else
        StripRun<T, false>(program, value, temporaries, from, first, keys, lanes).run(pass);
    return value;
}

template class Machine<float>;
template class Machine<double>;

}  // namespace overt::OVERT_LEVEL
