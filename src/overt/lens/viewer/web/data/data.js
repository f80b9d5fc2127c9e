import { allowedAt, runOf, tile, vectorAt, weightsColumn, weightsRow } from "./exact.js";

// Opens the data that Python packed. A source is { header(), encoding(n), text(n) }; block 0 is read at once, a block of vectors at the
// first use of one of its heads.

const TYPES = { float32: Float32Array, int32: Int32Array, int16: Int16Array, uint8: Uint8Array };

export function embedded(page) {
  const block = (n) => page.getElementById(`block-${n}`);
  return {
    async header() {
      const { dataset, textContent } = page.getElementById("header");
      return JSON.parse(dataset.encoding ? new TextDecoder().decode(await bytesOf(textContent, dataset.encoding)) : textContent);
    },
    encoding: (n) => block(n).dataset.encoding,
    text(n) {
      const { textContent } = block(n);
      block(n).remove(); // a block is read only once
      return textContent;
    },
  };
}

export async function open(source) {
  return recordingOf(await source.header(), await arraysOf(source));
}

// The arrays of a source, by their addresses.
export async function arraysOf(source) {
  const encoding = source.encoding(0);
  const blocks = [await bytesOf(source.text(0), encoding)];
  const block = (n) => (blocks[n] ??= fromBase64(source.text(n)));
  return (address) => (address ? new TYPES[address[2]](block(address[0]).buffer, address[1], address[3]) : null);
}

// The recording that a header describes; `array(address)` gives each of its arrays.
export function recordingOf(header, array) {
  const words = header.words.map((list, n) => tokensOf(list, header.tokenized?.[n]));
  const heads = header.heads.map((entry, index) => new Head(entry, header.calls[entry.call], index, words, array));
  const longest = Math.max(0, ...heads.map((head) => Math.max(head.queryCount, head.keyCount)));
  const { title, model, missing, verified, start, opened, passes, story, file, date, recorded } = header;
  const batch = [...new Set(heads.map((head) => head.batch))];
  const notes = [...new Set(header.calls.flatMap((call) => call.notes))];
  const residual = { ...verified, difference: Number(verified.difference), bound: Number(verified.bound) };
  // The reason why a recipe chose a head.
  const whyOf = (head) => (story && heads[start].number === head.number && heads[start].head === head.head ? story.why[head.batch] : "");
  return { title, texts: header.texts ?? [], model, missing, verified: residual, start, opened, passes, story, file, date, recorded, whyOf, batch, notes, heads, calls: header.calls, words, longest };
}

export async function bytesOf(text, encoding) {
  const bytes = fromBase64(text);
  if (encoding !== "gzip") return bytes;
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

// A list of tokens, with the tokenizer's facts if there are any: pieces, special tokens, and tokens after a space.
const tokensOf = (list, tokenized) => Object.freeze(Object.assign(list, { tokenizer: tokenized ?? null }));

const numbered = (count) => Object.freeze(Array.from({ length: count }, (_, i) => String(i)));

let made = 0; // the number of heads made: live pages replace their recordings, so an index alone names no head

// One head of one call and one batch element. Its vectors are read at first use.
class Head {
  #entry;
  #array;
  #terms = null;

  constructor(entry, call, index, words, array) {
    [this.#entry, this.#array] = [entry, array];
    Object.assign(this, { id: (made += 1), index, call, number: call.number, layer: call.layer, pass: call.pass, head: entry.head, batch: entry.batch });
    Object.assign(this, { role: entry.role, roleScore: Number(entry.roleScore), roleScores: entry.roleScores, entropy: Number(entry.entropy) });
    Object.assign(this, { queryCount: call.queries, keyCount: call.keys, width: entry.query?.width ?? 0, valueWidth: entry.valueWidth ?? 0 });
    this.name = `L${call.number}H${entry.head}`;
    this.known = entry.queries !== null; // whether tokens were given
    this.queries = this.known ? words[entry.queries] : numbered(call.queries);
    this.keys = entry.keys !== null ? words[entry.keys] : numbered(call.keys);
    this.same = entry.queries === entry.keys && call.queries === call.keys;
    Object.assign(this, { score: entry.score ?? null, temperature: entry.temperature ?? 1, sink: entry.sink ?? null, normalizer: entry.normalizer ?? "softmax" });
    Object.assign(this, { notes: call.notes, residual: Number(call.residual), bound: Number(call.bound), holds: call.holds, note: call.note });
    this.exact = Boolean(entry.query || entry.weights); // whether single weights are available
    this.stored = Boolean(entry.weights); // whether they are stored, not computed from query and key
    this.biasKind = entry.bias?.kind ?? "none";
    this.maskKind = entry.mask?.kind ?? "none";
    this.outWhy = entry.outWhy ?? "the recording has summaries, without values";
    this.recipe = entry.recipe ?? null;
    this.signed = Boolean(call.mixer); // weights of a linear mixer are signed and do not sum to one
  }

  get lse() { return this.#array(this.#entry.lse); }
  get entropies() { return this.#array(this.#entry.entropies); }
  get outNorm() { return this.#array(this.#entry.outNorm); } // ‖v_j W_O‖ of each key, null where W_O is not known
  get received() { return this.#array(this.#entry.received); }

  // The strongest links: weights, rows and keys, strongest first.
  get links() {
    const { weights, rows, keys } = this.#entry.links;
    return { weights: this.#array(weights), rows: this.#array(rows), keys: this.#array(keys) };
  }

  // The largest weights of each query if only a summary was kept: `width` weights and keys per query, −1 after the last.
  get top() {
    const { top } = this.#entry;
    return top ? { width: top.width, weights: this.#array(top.weights), keys: this.#array(top.keys) } : null;
  }

  // The map of cells in the codes of colour_scale.js.
  get base() {
    const { base } = this.#entry;
    if (!base) return null;
    const { rows, columns } = base;
    return { rows, columns, max: this.#array(base.max), mean: this.#array(base.mean), rowEdges: this.#array(base.rowEdges), keyEdges: this.#array(base.keyEdges) };
  }

  // The keys that any of these rows may attend to, from the first to the last; null if the mask is not one run of keys per row.
  runOfRows(first, stop) {
    const terms = { queryCount: this.queryCount, keyCount: this.keyCount, mask: this.#mask };
    let [low, high] = [Infinity, -Infinity];
    for (let i = first; i < stop; i++) {
      const run = runOf(terms, i);
      if (!run) return null;
      if (run[1] > run[0]) [low, high] = [Math.min(low, run[0]), Math.max(high, run[1])];
    }
    return [low, high];
  }

  // The input of exact.js: a plain object that can be sent to a Worker.
  get terms() {
    if (!this.exact) return null;
    return (this.#terms ??= {
      queryCount: this.queryCount, keyCount: this.keyCount, width: this.width, temperature: this.temperature, score: this.score ?? { kind: "dot", scale: 1, softcap: null },
      query: this.#vectors("query"), key: this.#vectors("key"), weights: this.#vectors("weights"), lse: this.lse, normalizer: this.normalizer,
      bias: this.#placed(this.#entry.bias), mask: this.#mask, mixer: this.#mixer,
    });
  }

  query(i) { return this.#vector("query", i); }
  key(j) { return this.#vector("key", j); }
  value(j) { return this.#vector("value", j); }
  // The query's own vector before any projection: its value if values are the vectors themselves.
  own(i) { return this.#vector("states", i) ?? (this.same ? this.value(i) : this.query(i)); }
  allowed(i, j) { return this.exact ? allowedAt(this.terms, i, j) : true; }
  weight(i, j) { return this.exact ? tile(this.terms, i, i + 1, j, j + 1)[0] : null; }
  weightsRow(i) { return this.exact ? weightsRow(this.terms, i) : null; }
  weightsColumn(j) { return this.exact ? weightsColumn(this.terms, j) : null; }

  // In block 0, so that the mask is known before any vector.
  get #mask() { return this.#placed(this.#entry.mask); }

  get #mixer() {
    const { mixer } = this.#entry;
    if (!mixer) return null;
    const vectors = Object.fromEntries(["decay", "erase", "probe"].map((name) => [name, this.#vectors(name, mixer[name])]));
    return { ...vectors, before: mixer.before, diagonal: this.#array(mixer.diagonal), divisors: this.#array(mixer.divisors) };
  }

  #vectors(name, entry = this.#entry[name]) {
    return entry ? { data: this.#array(entry.data), scale: this.#array(entry.scale), width: entry.width, count: entry.count } : null;
  }

  #vector(name, i) {
    return this.#entry[name] ? vectorAt(this.#vectors(name), i) : null;
  }

  // The object with the addresses of arrays replaced by the arrays.
  #placed(fields) {
    const result = { ...(fields ?? { kind: "none" }) };
    for (const name of ["values", "starts", "stops", "bits"]) if (result[name]) result[name] = this.#array(result[name]);
    return result;
  }
}
