// Words that say something of their own, and the one that a page begins with.

const FUNCTION = /^(a|an|the|this|that|these|those|of|to|in|on|at|by|for|from|with|as|and|or|but|nor|so|if|than|not|no|is|are|was|were|be|been|being|am|do|does|did|has|have|had|will|would|can|could|shall|should|may|might|must|le|la|les|l|un|une|des|de|du|d|et|ou|à|au|aux|en|dans|est|sont|a|ont)$/iu;

const special = (words, i) => Boolean(words.tokenizer?.special[i]);
const plain = (words, i) => !special(words, i) && /[\p{L}\p{N}]/u.test(words[i]);
const content = (words, i) => plain(words, i) && whole(words, i) && !FUNCTION.test(words[i]);

// Whether the tokenizer has the word in one piece.
function whole(words, i) {
  const spaced = words.tokenizer?.spaced;
  return !spaced || Boolean((i === 0 || spaced[i]) && (i + 1 >= words.length || spaced[i + 1] || !/[\p{L}\p{N}]/u.test(words[i + 1])));
}

// The token of the head's strongest link from a content word to another word; of a key, where `side` is "key". Special tokens are never chosen
// where there is another one.
export function contentToken(head, side = "query") {
  const { rows, keys } = head.links;
  const [own, other, words, others] = side === "query" ? [rows, keys, head.queries, head.keys] : [keys, rows, head.keys, head.queries];
  const link = (...allowed) => own.find((token, n) => (!head.same || token !== other[n]) && allowed.every((each, part) => each([words, others][part], [token, other[n]][part])));
  const first = (allowed) => words.findIndex((_, i) => allowed(words, i));
  const found = [() => link(content, plain), () => link(content), () => link(plain), () => first(content), () => first(plain), () => words.findIndex((_, i) => !special(words, i))];
  for (const find of found) {
    const token = find();
    if (token >= 0) return token;
  }
  return 0;
}
