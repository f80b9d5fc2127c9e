// Generates a text word by word: the most probable next word (greedy), or the best of several texts (beam), as in models/decoding.py.
// A model is { start(ids), step(tokens, memory), reorder(memory, rows), words }; a step gives the scores of each row, `stride` numbers apart.

export const START = 1;
export const END = 2;

export const longestOf = (ids) => 2 * ids.length + 10;

// `written(token, scores)` is called with each new word.
export function greedySearch(model, memory, limit, written = () => {}) {
  const tokens = [];
  let [last, score] = [START, 0];
  while (last !== END) {
    const { scores } = model.step([last], memory);
    last = tokens.length >= limit ? END : largestOf(scores, model.words);
    score += scores[last] - logSumExp(scores, 0, model.words);
    if (last !== END) tokens.push(last);
    written(last, scores);
  }
  return { tokens, score };
}

export function beamSearch(model, memory, limit, size, penalty = 1) {
  let rows = Array.from({ length: size }, (_, i) => ({ tokens: [], total: i ? -Infinity : 0 }));
  let active = size;
  const finished = [];
  while (rows.some(({ total }) => total > -Infinity)) {
    const { scores, stride } = model.step(rows.map(({ tokens }) => tokens.at(-1) ?? START), memory);
    const best = bestOf(rows, scores, stride, model.words, size, limit);
    const ended = best.filter(({ token, total }, k) => k < active && total > -Infinity && token === END);
    for (const { parent, total } of ended) finished.push({ tokens: rows[parent].tokens, score: total / (rows[parent].tokens.length + 1) ** penalty });
    rows = best.map(({ parent, token, total }, k) => ({ parent, tokens: [...rows[parent].tokens, token], total: k < active && token !== END ? total : -Infinity }));
    active -= ended.length;
    model.reorder(memory, rows.map(({ parent }) => parent));
  }
  return finished.sort((a, b) => b.score - a.score)[0];
}

// The `size` most probable next words of all rows, best first: { parent, token, total }.
function bestOf(rows, scores, stride, words, size, limit) {
  const best = [];
  rows.forEach(({ tokens, total }, parent) => {
    const sum = total - logSumExp(scores, parent * stride, words);
    const only = tokens.length >= limit;
    for (let token = only ? END : 0; token < (only ? END + 1 : words); token++) {
      const next = sum + scores[parent * stride + token];
      if (best.length === size && !(next > best[size - 1].total)) continue;
      let at = best.length;
      while (at > 0 && next > best[at - 1].total) at--;
      best.splice(at, 0, { parent, token, total: next });
      best.length = Math.min(best.length, size);
    }
  });
  return best;
}

function largestOf(scores, count) {
  let best = 0;
  for (let i = 1; i < count; i++) if (scores[i] > scores[best]) best = i;
  return best;
}

function logSumExp(scores, start, count) {
  let [largest, sum] = [-Infinity, 0];
  for (let i = start; i < start + count; i++) if (scores[i] > largest) largest = scores[i];
  for (let i = start; i < start + count; i++) sum += Math.exp(scores[i] - largest);
  return largest + Math.log(sum);
}
