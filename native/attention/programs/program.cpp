#include "attention/programs/program.hpp"

#include <utility>

#include "attention/programs/simple_sum.hpp"

namespace overt {
namespace {

class Reader {
    const std::vector<int>& code;
    size_t next = 0;
    Index query_columns;
    Program& to;
    bool of_tangent = false;

   public:
    const char* wrong = nullptr;

    Reader(const std::vector<int>& code, Index query_columns, Program& to) : code(code), query_columns(query_columns), to(to) {}

    void run() {
        for (int left = count("products"); left > 0 && !wrong; left--) {
            ProductOfColumns product{number(), number(), number()};
            check(inside(product.first, product.size, query_columns) && inside(product.second, product.size, to.key_columns),
                  "a product within the columns");
            to.products.push_back(product);
        }
        pass(to.forward, false), pass(to.backward, true);
        check(to.moving || !of_tangent, "a gradient of the tangent where there is one");
        check(next == code.size(), "a program that ends with its last stage");
    }

   private:
    void check(bool right, const char* what) {
        if (!right && !wrong) wrong = what;
    }

    int number() {
        check(next < code.size(), "a whole program");
        return next < code.size() ? code[next++] : 0;
    }

    int count(const char*) {
        int value = number();
        check(value >= 0 && static_cast<size_t>(value) <= code.size(), "counts of what follows");
        return wrong ? 0 : value;
    }

    static bool place_of_pairs(Place place) { return place == Place::temporary || place == Place::gradient; }

    static bool inside(Index base, Index size, Index all) { return base >= 0 && size >= 0 && base + size <= all; }

    void pass(Pass& into, bool backward) {
        into.temporaries = count("temporaries");
        for (int stages = count("stages"); stages > 0 && !wrong; stages--) {
            Stage stage;
            stage.count = number();
            check(stage.count >= 0, "stages of 0 or more features");
            for (int left = count("instructions"); left > 0 && !wrong; left--) {
                Instruction instruction{static_cast<Operation>(number()), operand(into, stage), operand(into, stage)};
                valid(instruction, backward);
                to.moving |= instruction.first.place == Place::score;
                to.adds_to_keys |= backward && (instruction.first.place == Place::key || instruction.operation == Operation::distribute);
                stage.instructions.push_back(instruction);
            }
            for (const Instruction& instruction : stage.instructions)
                check(instruction.operation != Operation::distribute || SimpleSum(stage).is_one, "simple sums whose gradients are distributed");
            into.stages.push_back(std::move(stage));
        }
    }

    Operand operand(const Pass& pass, const Stage& stage) {
        Operand result{static_cast<Place>(number()), number(), number()};
        Index all = 0, features = stage.count > 0 ? stage.count : 1;
        switch (result.place) {
            case Place::none: return result;
            case Place::query: all = query_columns; break;
            case Place::key: all = to.key_columns; break;
            case Place::constant: all = to.constant_count; break;
            case Place::number: all = static_cast<Index>(to.numbers.size()); break;
            case Place::temporary: all = pass.temporaries; break;
            case Place::product: all = static_cast<Index>(to.products.size()); break;
            case Place::gradient: all = 2, of_tangent |= result.base == 1; break;
            case Place::score: all = 1; break;
            default: check(false, "operands of places that there are");
        }
        check((result.step == 0 || result.step == 1) && inside(result.base, result.step ? features : 1, all), "operands within the inputs");
        return result;
    }

    void valid(const Instruction& instruction, bool backward) {
        Operation operation = instruction.operation;
        check(operation >= Operation::load && operation <= Operation::last, "operations that there are");
        bool unary = operation >= Operation::negate && operation <= Operation::square;
        check((instruction.first.place == Place::none) == unary, "one operand for each operation that has one");
        check((instruction.second.place != Place::none) == (operation == Operation::select), "two operands for a selection");
        bool writes = operation == Operation::store || (operation >= Operation::add_to_sum && operation <= Operation::lower_minimum);
        bool stores_score = instruction.first.place == Place::score && operation == Operation::store && !backward;
        check(!writes || instruction.first.place == Place::temporary || stores_score, "results in temporaries");
        check(stores_score || (instruction.first.place != Place::score && instruction.second.place != Place::score),
              "a score that is stored in the forward pass");
        bool adds = operation == Operation::add_to || operation == Operation::subtract_from;
        check(operation != Operation::distribute || place_of_pairs(instruction.first.place), "gradients of sums that are pairs'");
        Place place = instruction.first.place;
        check(!adds || (backward && (place <= Place::constant || place == Place::product)), "gradients of inputs in the backward pass");
        check(backward || (instruction.first.place != Place::gradient && instruction.second.place != Place::gradient),
              "gradients in the backward pass");
    }
};

}  // namespace

const char* read_program(const std::vector<int>& code, Index query_columns, Program& to) {
    Reader reader(code, query_columns, to);
    reader.run();
    return reader.wrong;
}

}  // namespace overt
