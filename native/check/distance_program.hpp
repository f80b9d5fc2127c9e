// A score as a program, for check.cpp.
#pragma once

#include <vector>

#include "attention/programs/program.hpp"

namespace overt {

// -sum_d |q_d - k_d| and its gradients, as overt.attention.expressions writes them.
inline std::vector<int> distance_program(int dim) {
    int load = static_cast<int>(Operation::load), store = static_cast<int>(Operation::store),
        subtract = static_cast<int>(Operation::subtract), absolute = static_cast<int>(Operation::absolute),
        add_to_sum = static_cast<int>(Operation::add_to_sum), negate = static_cast<int>(Operation::negate),
        distribute = static_cast<int>(Operation::distribute);
    int query = static_cast<int>(Place::query), key = static_cast<int>(Place::key), number = static_cast<int>(Place::number),
        temporary = static_cast<int>(Place::temporary), gradient = static_cast<int>(Place::gradient);
    return {
        0,                                                                                     // no products
        1, 3,                                                                                  // one temporary, three stages
        0, 2, load, number, 0, 0, 0, 0, 0, store, temporary, 0, 0, 0, 0, 0,                    // sum = 0
        dim, 4, load, query, 0, 1, 0, 0, 0, subtract, key, 0, 1, 0, 0, 0,                      // q - k
        absolute, 0, 0, 0, 0, 0, 0, add_to_sum, temporary, 0, 0, 0, 0, 0,                      // sum += |.|
        0, 2, load, temporary, 0, 0, 0, 0, 0, negate, 0, 0, 0, 0, 0, 0,                        // -sum
        1, 2,                                                                                  // backward: one temporary, two stages
        0, 3, load, gradient, 0, 0, 0, 0, 0, negate, 0, 0, 0, 0, 0, 0, store, temporary, 0, 0, 0, 0, 0,
        dim, 4, load, query, 0, 1, 0, 0, 0, subtract, key, 0, 1, 0, 0, 0,
        absolute, 0, 0, 0, 0, 0, 0, distribute, temporary, 0, 0, 0, 0, 0,
    };
}

}  // namespace overt
