// Stages that sum one simple function of each feature, and run as separate loops.
#pragma once

#include <cstddef>

#include "attention/programs/program.hpp"

namespace overt {

enum class Meeting { difference, sum, product };
enum class Shape { plain, absolute, square, bounded };  // bounded: the maximum of it and a number

// A stage as a sum or maximum of g(q_d o k_d) [* w_d], if it is one: load query, o key, [g], [* constant]; then added to a sum, compared
// with a maximum, or, for the gradient of that sum, distributed.
struct SimpleSum {
    bool is_one = false, weighted = false, largest = false, backward = false;
    Meeting meeting = Meeting::difference;
    Shape shape = Shape::plain;
    Index query = 0, key = 0, weight = 0, bound = -1, temporary = 0;

    explicit SimpleSum(const Stage& stage) {
        const std::vector<Instruction>& steps = stage.instructions;
        size_t next = 0, count = steps.size();
        if (count < 3 || count > 5) return;
        const Instruction &load = steps[next++], &meets = steps[next++];
        if (load.operation != Operation::load || load.first.place != Place::query || !load.first.step) return;
        if (meets.first.place != Place::key || !meets.first.step) return;
        if (meets.operation == Operation::subtract) meeting = Meeting::difference;
        else if (meets.operation == Operation::add) meeting = Meeting::sum;
        else if (meets.operation == Operation::multiply) meeting = Meeting::product;
        else return;
        query = load.first.base, key = meets.first.base;
        const Instruction& shapes = steps[next];
        if (shapes.operation == Operation::absolute) shape = Shape::absolute, next++;
        else if (shapes.operation == Operation::square) shape = Shape::square, next++;
        else if (shapes.operation == Operation::maximum && shapes.first.place == Place::number) {
            shape = Shape::bounded, bound = shapes.first.base, next++;
        }
        const Instruction& weighs = steps[next];
        if (weighs.operation == Operation::multiply && weighs.first.place == Place::constant && weighs.first.step)
            weighted = true, weight = weighs.first.base, next++;
        if (next + 1 != count) return;
        Operation last = steps[next].operation;
        largest = last == Operation::raise_maximum, backward = last == Operation::distribute;
        temporary = steps[next].first.base;
        is_one = largest ? !weighted : backward || last == Operation::add_to_sum;
        is_one = is_one && (meeting != Meeting::product || shape == Shape::plain);
    }
};

}  // namespace overt
