// A score as a program over pairs of a query and a key; overt.attention.expressions compiles it.
//
// A machine has one value, temporaries, and inputs: columns of the query and of the key, constants and numbers. A pass is a list of stages;
// each runs its instructions for the features 0 to count - 1, or once if count is 0. The forward pass ends with the score as the value.
// The backward pass begins with the score's gradient as an input, and adds gradients to inputs.
//
// With tangents, the inputs' directions are additional columns and constants. The forward pass then stores the score and ends with its
// tangent as the value, and the backward pass begins with two gradients: the score's, and its tangent's.
#pragma once

#include <vector>

#include "kernels.hpp"

namespace overt {

// In the order of OPERATIONS in overt/attention/expressions/instructions.py.
enum class Operation : int {
    load, store,
    negate, absolute, sign, exponential, logarithm, logarithm_of_one_more, exponential_less_one, root, tangent, sigmoid, sine, cosine,
    error_function, arctangent, square,
    add, subtract, multiply, divide, maximum, minimum, above, at_least, equal, power,
    subtract_from_operand, divide_operand, below, at_most, power_of_operand,
    select,
    add_to_sum, raise_maximum, lower_minimum,
    add_to, subtract_from,
    distribute,  // distributes the operand, the gradient of the sum computed by the stage's earlier instructions, to the inputs of that sum
    last = distribute
};

// An operand: for feature f, number base + f * step of its kind.
enum class Place : int { none, query, key, constant, number, temporary, product, gradient, score, last = score };

struct Operand {
    Place place;
    int base, step;
};

struct Instruction {
    Operation operation;
    Operand first, second;
};

struct Stage {
    int count = 0;
    std::vector<Instruction> instructions;
};

struct Pass {
    int temporaries = 0;
    std::vector<Stage> stages;
};

// sum_d query_(first + d) key_(second + d), computed for a whole tile.
struct ProductOfColumns {
    int first, second, size;
};

struct Program {
    std::vector<ProductOfColumns> products;
    Pass forward, backward;
    bool moving = false;  // whether its inputs have tangents
    std::vector<double> numbers;
    Index key_columns = 0, constant_count = 0;
    bool adds_to_keys = false;  // whether its backward pass adds to gradients of keys other than through products
    Matrix constants;  // (1, constant_count) for each entry, in the kernel's number type
};

// Reads a program and checks that it stays within its inputs; returns the rule that it breaks, nullptr if it breaks none.
const char* read_program(const std::vector<int>& code, Index query_columns, Program& to);

}  // namespace overt
