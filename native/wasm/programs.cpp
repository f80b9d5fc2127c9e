// Scores that a reader of the page types, as programs over pairs.
#include "attention/programs/program_tiles.hpp"
#include "wasm/exported.hpp"

namespace overt::OVERT_LEVEL {

// to (Q, K) = f(q_i, k_j) for the rows of query (Q, D) and key (K, D). Returns nullptr, or the rule that the program breaks.
EXPORTED(program_scores)
const char* program_scores(const float* query, int queries, const float* key, int keys, int dim, const int* code, int length,
                           const double* numbers, int count, float* to) {
    Scratch<char> memory(0);  // after it: the program's vectors, released with it
    Program program;
    program.key_columns = dim;
    for (int i = 0; i < count; i++) program.numbers.push_back(numbers[i]);
    if (const char* wrong = read_program({code, code + length}, dim, program)) return wrong;
    const Index start = 0;
    const double one = 1;
    Inputs inputs;
    inputs.batch = 1, inputs.queries = queries, inputs.keys = keys, inputs.head_dim = dim;
    inputs.query = {query, Kind::float32, &start, dim};
    inputs.key = {key, Kind::float32, &start, dim};
    Score score;
    score.form = Form::program, score.scale = &one, score.program = &program;
    Units<float> units(score, 0, 1.0);
    Scratch<float> workspace(ProgramScores<float>::size(inputs, score)), tile(TRANSPOSED_TILE);
    ProgramScores<float> scores(inputs, score, workspace.data);
    for (int row = 0; row < queries; row += QUERIES) {
        Tile at{0, row, 0, min_of(QUERIES, queries - row), 0};
        scores.begin(at, units);
        for (; at.key < keys; at.key += KEYS) {
            at.keys = static_cast<int>(min_of<Index>(KEYS, keys - at.key));
            scores.tile(at, 0, units, tile.data);
            for (int i = 0; i < at.rows; i++)
                for (int c = 0; c < at.keys; c++) to[(row + i) * keys + at.key + c] = tile.data[c * QUERIES + i];
        }
    }
    return nullptr;
}

}  // namespace overt::OVERT_LEVEL
