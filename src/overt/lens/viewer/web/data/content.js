// Content words, and the word that a page begins with: explain/opening.py has the same words and the same rule.

const FUNCTION = /^(a|an|the|this|that|these|those|of|to|in|on|at|by|for|from|with|as|and|or|but|nor|so|if|than|not|no|is|are|was|were|be|been|being|am|do|does|did|has|have|had|will|would|can|could|shall|should|may|might|must|s|t|ll|re|ve|don|doesn|didn|isn|wasn|le|la|les|l|un|une|des|de|du|d|et|ou|à|au|aux|en|dans|est|sont|ont)$/iu;
const PRONOUN = /^(i|you|he|she|it|we|they|me|him|her|us|them|my|your|his|its|our|their|je|tu|il|elle|on|nous|vous|ils|elles|me|te|se|lui|leur|mon|ma|mes|ton|ta|tes|son|sa|ses|notre|nos|votre|vos|leurs|ce|c|j|m|n|qu|que|qui|y)$/iu;

const LETTER = /[\p{L}\p{N}]/u;

const special = (words, i) => Boolean(words.tokenizer?.special[i]);
const plain = (words, i) => !special(words, i) && LETTER.test(words[i]);
const piece = (words, i) => plain(words, i) && !FUNCTION.test(words[i]);
const content = (words, i) => piece(words, i) && whole(words, i);
const telling = (words, i) => !PRONOUN.test(words[i]);

// Whether the tokenizer has the word in one piece.
function whole(words, i) {
  const spaced = words.tokenizer?.spaced;
  const apart = (j) => j < 1 || j >= words.length || spaced[j] || !LETTER.test(words[j]) || !LETTER.test(words[j - 1]);
  return !spaced || (apart(i) && apart(i + 1));
}

// The strongest link of a head that is also the strongest of its token, { token, weight }: from a content word to another content word with
// another spelling, no pronoun; null if there is none. The token is a query, or a key if `side` is "key".
export function leadOf(head, side = "query") {
  const { weights, rows, keys } = head.links;
  const [own, other, words, others] = side === "query" ? [rows, keys, head.queries, head.keys] : [keys, rows, head.keys, head.queries];
  const first = new Set();
  const leads = own.map((_, n) => n).filter((n) => !first.has(own[n]) && first.add(own[n]));
  const differ = (n) => words[own[n]].toLowerCase() !== others[other[n]].toLowerCase();
  for (const is of [content, piece]) {
    const n = leads.find((n) => is(words, own[n]) && is(others, other[n]) && telling(side === "query" ? others : words, keys[n]) && differ(n));
    if (n !== undefined) return { token: own[n], weight: weights[n] };
  }
  return null;
}

// The token of this link, or else of a weaker link, or the first word. A special token is chosen only if there is no other.
export function contentToken(head, side = "query") {
  const { rows, keys } = head.links;
  const [own, other, words, others] = side === "query" ? [rows, keys, head.queries, head.keys] : [keys, rows, head.keys, head.queries];
  const link = (is) => own.find((token, n) => (!head.same || token !== other[n]) && is(words, token) && plain(others, other[n]));
  const first = (is) => words.findIndex((_, i) => is(words, i));
  const choices = [() => leadOf(head, side)?.token, () => link(content), () => link(plain), () => first(content), () => first(plain), () => first((words, i) => !special(words, i))];
  for (const choose of choices) {
    const token = choose();
    if (token >= 0) return token;
  }
  return 0;
}
