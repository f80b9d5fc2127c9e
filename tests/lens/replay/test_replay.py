"""A replay reads every dialect, checks itself, and its masses and knock-outs are what plain definitions give."""

import json
import math

import numpy as np
import pytest
import torch

from overt.errors import InputError, KindError
from overt.learn.data.tokenizer import Tokenizer
from overt.lens import read_log, record, replay
from overt.lens.analysis.replay.sequences import token_sequence
from overt.lens.analysis.replay.spans import span_members
from overt.models import LanguageModel
from server_logs import ANSWER, DIALECTS, PROMPT, answered, log_probabilities, logged, vllm_completion
from small_surveys import WORDS

SPANS = {"first": ("<doc> a", "."), "question": (len(PROMPT) - len("the cat sat on"), len(PROMPT))}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_gives_the_same_replay(dialect, model_and_tokenizer, tokens, tmp_path):
    answer = answered(tmp_path, dialect, tokens)
    assert answer.dialect == dialect.removesuffix(" chat").removesuffix(" completions")
    result = replay(model_and_tokenizer[0], answer, tokenizer=model_and_tokenizer[1], spans=SPANS)
    assert result.check.compared == len(tokens[1])
    assert result.check.largest < 1e-5
    assert result.check.holds
    assert [each.name for each in result.spans] == ["first", "question", "answer so far", "other"]
    assert np.allclose(sum(each.mass for each in result.spans), 1, atol=1e-6)
    retokenized = any("anew" in note or "follow from" in note for note in result.notes)
    assert retokenized == (dialect in ("OpenAI", "llama.cpp", "llama.cpp chat"))


def test_mass_is_the_weight_on_the_spans_tokens(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, *_ = tokens
    result = replay(model, answered(tmp_path, "vLLM", tokens), tokenizer=tokenizer, spans=SPANS)
    weights = model.weights(torch.tensor([[*prompt, *ids]]))["decoder"]
    text = "".join(result.words[: len(prompt)])
    shift = text.index(PROMPT)
    stop = shift + PROMPT.index(".") + 1
    lengths = np.cumsum([0, *map(len, result.words)])
    first = [at for at, word in enumerate(result.words[: len(prompt)]) if lengths[at] + len(word) - len(word.lstrip()) < stop]
    for index, (_, call, head) in enumerate(result.heads):
        for at in range(len(ids)):
            expected = float(weights[call][0, head, len(prompt) - 1 + at, first].sum())
            assert result.spans[0].by_head[index, at] == pytest.approx(expected, abs=1e-6)
    assert result.spans[0].tokens == len(first)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["GPT2", "Llama", "Mistral", "GptOss"])
@pytest.mark.few_cases(2)
def test_mass_is_the_recorded_weight_of_grouped_windowed_and_sinking_heads(kind, dtype, tmp_path):
    import transformers

    tokenizer = Tokenizer.learn([" ".join(WORDS), PROMPT] * 4, merges=80)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
    }
    extra = {
        "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4},
        "Llama": sizes,
        "Mistral": {**sizes, "sliding_window": 6},
        "GptOss": {**sizes, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, "sliding_window": 8},
    }[kind]
    config = getattr(transformers, f"{kind}Config")(vocab_size=tokenizer.words, initializer_range=0.3, **extra)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().to(dtype)
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(ANSWER)
    values = log_probabilities(model, prompt, ids)
    response = vllm_completion(prompt, ids, ["x"] * len(ids), values, ANSWER)
    answer = logged(tmp_path, {"request": {"prompt": PROMPT}, "response": response}).answers[0]
    result = replay(model, answer, tokenizer=tokenizer, spans=SPANS, unchecked=True)
    with record(model) as recording, torch.no_grad():
        model(input_ids=torch.tensor([[*prompt, *ids]]))
    members = np.array([*span_members(answer, token_sequence(answer, tokenizer), SPANS).values()], np.float32)
    rows = slice(len(prompt) - 1, len(prompt) + len(ids) - 1)
    for index, (_, call, head) in enumerate(result.heads):
        weights = recording[call, head].weights()[0, rows].double().numpy()
        for at, span in enumerate(result.spans):
            assert np.allclose(span.by_head[index], weights @ members[at], atol=2e-6), (call, head, span.name)
    assert (sum(span.by_head for span in result.spans) < 0.99).any() == (kind == "GptOss")


def test_knock_out_of_the_end_is_the_shorter_prompts_own_log_probability(model_and_tokenizer, tokens, tmp_path):
    # Positions stay, so a span at the very beginning cannot be cut off and compared; with relative positions nothing else differs.
    _, tokenizer = model_and_tokenizer
    torch.manual_seed(1)
    model = LanguageModel(tokenizer.words, width=16, heads=2, layers=2, feed_forward=32, positions="rotary").eval()
    prompt, ids, words, _, text = tokens
    values = log_probabilities(model, prompt, ids)
    answer = answered(tmp_path, "vLLM", (prompt, ids, words, values, text))
    result = replay(model, answer, tokenizer=tokenizer, spans={"start": (0, PROMPT.index("</doc>") + 6)})
    (start, *_) = result.spans
    shorter = log_probabilities(model, prompt[start.tokens :], ids)
    assert np.allclose(start.change, np.subtract(values, shorter), atol=1e-5)
    assert np.abs(start.change).max() > 1e-3


@pytest.mark.parametrize("length", [1, 5])
def test_masses_of_the_pass_that_computes_attention_are_those_of_one_beside_it(length):
    from transformers import LlamaConfig, LlamaForCausalLM

    from overt.lens.analysis.observing import observing
    from overt.lens.analysis.replay.spans_read import SpanMasses

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=40, intermediate_size=32, initializer_range=0.3, **sizes)).eval()
    ids, members = torch.randint(40, (1, 12)), np.eye(3, dtype=np.float32)[np.arange(12) % 3].T
    results = []
    for one_pass in (False, True):
        masses = SpanMasses(members, length - 1, 11)
        with torch.no_grad(), observing(model, masses, masses.compute if one_pass else None) as recorder:
            logits = model(input_ids=ids, use_cache=False).logits
        assert recorder.missing == []
        results.append((logits, np.concatenate([*masses.masses.values()])))
        assert (masses.ahead is not None) == one_pass
    assert torch.allclose(results[0][0], results[1][0], atol=1e-5)
    assert np.allclose(results[0][1], results[1][1], atol=1e-6)


def test_knock_out_is_hugging_faces_own_mask(tmp_path):
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = Tokenizer.learn([" ".join(WORDS), PROMPT] * 4, merges=80)
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 32,
    }
    model = LlamaForCausalLM(LlamaConfig(vocab_size=tokenizer.words, initializer_range=0.3, **sizes)).eval()
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(ANSWER)
    values = log_probabilities(model, prompt, ids)
    record = vllm_completion(prompt, ids, ["x"] * len(ids), values, ANSWER)
    answer = logged(tmp_path, {"request": {"prompt": PROMPT}, "response": record}).answers[0]
    middle = (PROMPT.index("<doc> the dog"), PROMPT.index("the cat sat on", 50) - 1)
    result = replay(model, answer, tokenizer=tokenizer, spans={"second": middle})
    lengths = np.cumsum([len(word) for word in result.words])
    span = result.spans[0]
    first = int(np.searchsorted(lengths, middle[0] + 2))
    visible = torch.ones(1, len(prompt) + len(ids), dtype=torch.long)
    visible[0, first : first + span.tokens] = 0
    both = torch.tensor([[*prompt, *ids]])
    with torch.no_grad():
        masked = model(input_ids=both, attention_mask=visible, position_ids=torch.arange(both.shape[1])[None]).logits[0]
    expected = masked.log_softmax(-1)[range(len(prompt) - 1, both.shape[1] - 1), ids].numpy()
    assert np.allclose(span.change, np.array(values) - expected, atol=1e-4)
    assert np.abs(span.change).max() > 0.01


@pytest.mark.parametrize("kind", ["GPT2", "OPT", "Llama"])
def test_attention_that_a_model_writes_out_is_masked_as_torchs_is(kind, tmp_path):
    import transformers

    tokenizer = Tokenizer.learn([" ".join(WORDS), PROMPT] * 4, merges=80)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
    more = {"OPT": {"ffn_dim": 32, "word_embed_proj_dim": 32, "init_std": 0.3}, "Llama": {"intermediate_size": 32}}.get(
        kind, {}
    )
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
    config = getattr(transformers, f"{kind}Config")(vocab_size=tokenizer.words, **sizes, **more, **special)
    config.initializer_range = 0.3
    prompt, ids = tokenizer.encode(PROMPT), tokenizer.encode(ANSWER)
    words = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForCausalLM")
    results = []
    for written in ("eager", "sdpa"):
        torch.manual_seed(0)
        model = getattr(transformers, words)._from_config(config, attn_implementation=written).eval()
        values = log_probabilities(model, prompt, ids)
        answer = answered(tmp_path, "vLLM", (prompt, ids, ["x"] * len(ids), values, ANSWER))
        results.append(replay(model, answer, tokenizer=tokenizer, spans=SPANS))
    for one, other in zip(results[0].spans, results[1].spans, strict=True):
        assert np.allclose(one.mass, other.mass, atol=1e-5)
        assert np.allclose(one.change, other.change, atol=1e-4)
    assert np.abs(results[0].spans[0].change).max() > 0.01


def test_a_span_that_no_head_reads_is_not_needed(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    result = replay(model, answered(tmp_path, "vLLM", tokens), tokenizer=tokenizer, spans=SPANS)
    assert result.spans[2].mass[0] == 0  # nothing of the answer stands before its first token
    assert result.spans[2].change[0] == 0
    assert result.spans[3].tokens == len(tokens[0]) - result.spans[0].tokens - result.spans[1].tokens


def test_other_weights_are_not_explained_unless_told(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, words, values, text = tokens
    answer = answered(tmp_path, "vLLM", (prompt, ids, words, [value - 0.2 for value in values], text))
    result = replay(model, answer, tokenizer=tokenizer)
    assert not result.check.holds
    assert result.spans == []
    assert (
        "Expected replayed log probabilities within 0.05 nats of the server's, 0.5 at most, got 0.2 on average"
        in result.refused
    )
    assert replay(model, answer, tokenizer=tokenizer, bound=0.3).spans
    assert replay(model, answer, tokenizer=tokenizer, unchecked=True).spans


def test_one_token_that_is_far_off_is_enough_to_refuse(model_and_tokenizer, tokens, tmp_path):
    prompt, ids, words, values, text = tokens
    answer = answered(tmp_path, "vLLM", (prompt, ids, words, [*values[:-1], values[-1] - 0.51], text))
    result = replay(model_and_tokenizer[0], answer, tokenizer=model_and_tokenizer[1], bound=0.05)
    assert result.check.largest > 0.5
    assert not result.check.holds


def test_log_probabilities_at_the_temperature_are_recognised(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, words, _, text = tokens
    values = log_probabilities(model, prompt, ids, temperature=0.5)
    answer = answered(tmp_path, "vLLM", (prompt, ids, words, values, text), temperature=0.5)
    result = replay(model, answer, tokenizer=tokenizer)
    assert result.check.holds
    assert result.check.temperature == 0.5
    assert "at temperature 0.5" in str(result.check)


def test_a_log_without_log_probabilities_is_not_explained_unless_told(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    response = DIALECTS["vLLM"](*tokens)
    response["choices"][0]["logprobs"] = None
    answer = logged(tmp_path, response).answers[0]
    assert "Expected log probabilities in the log" in replay(model, answer, tokenizer=tokenizer).refused
    assert replay(model, answer, tokenizer=tokenizer, unchecked=True).spans[0].name == "prompt"
    sampled = DIALECTS["llama.cpp"](*tokens)
    for item in sampled["completion_probabilities"]:
        item["prob"] = math.exp(item.pop("logprob"))
    assert (
        "log probabilities after sampling" in replay(model, logged(tmp_path, sampled).answers[0], tokenizer=tokenizer).refused
    )


def test_a_log_of_one_document_and_batch_files_are_read(tokens, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps([DIALECTS["vLLM"](*tokens), DIALECTS["SGLang"](*tokens)], indent=1))
    assert [answer.dialect for answer in read_log(path).answers] == ["vLLM", "SGLang"]
    batch = {"custom_id": "q", "response": {"status_code": 200, "body": DIALECTS["vLLM"](*tokens)}}
    assert logged(tmp_path, batch).answers[0].ids == tokens[1]


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ({"a": (0, 20), "b": (10, 30)}, "spans that do not overlap, so that their masses add up, got 'a' to character"),
        ({"a": (0, 10_000)}, f"span 'a' inside of the prompt, characters 0 to {len(PROMPT)}, got 0 to 10000"),
        ({"a": (5, 5)}, "inside of the prompt"),
        ({"a": ("<doc>", "!")}, "the first one exactly once, got '<doc>' 2 times"),
        ({"a": ("sat on the mat", "!")}, "no '!' after 'sat on the mat'"),
        ({"answer so far": (0, 9)}, "span names other than"),
        ({" ": (0, 9)}, "and other than spaces, got ' '. Fix: choose another name"),
    ],
)
def test_spans_that_are_none_are_sentences(spans, message, model_and_tokenizer, tokens, tmp_path):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        replay(model_and_tokenizer[0], answered(tmp_path, "vLLM", tokens), tokenizer=model_and_tokenizer[1], spans=spans)


def test_what_cannot_be_replayed_is_a_sentence(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, words, values, text = tokens
    answer = answered(tmp_path, "vLLM", (prompt, [*ids[:-1], 99_999], words, values, text))
    with pytest.raises(InputError, match="got id 99999, of another vocabulary"):
        replay(model, answer, tokenizer=tokenizer)
    with pytest.raises(InputError, match="a log probability for each token of the answer, got 2 of"):
        replay(model, answered(tmp_path, "vLLM", (prompt, ids, words, values[:2], text)), tokenizer=tokenizer)
    with pytest.raises(InputError, match="a prompt in the log: token ids, a text, or messages, got none"):
        replay(model, logged(tmp_path, DIALECTS["OpenAI"](*tokens)).answers[0], tokenizer=tokenizer)
    with pytest.raises(InputError, match="token ids in the log, or an answer that the tokenizer cuts into as many tokens"):
        replay(model, answered(tmp_path, "OpenAI", (prompt, ids, ["�"] * 9, [-1.0] * 9, text)), tokenizer=tokenizer)
    unknown = answered(tmp_path, "vLLM", (tokenizer.encode("the %"), ids, words, values, text), prompt="the %")
    with pytest.raises(
        InputError, match="a prompt that its tokens spell, for spans in characters, got other letters, as in ' the <unk>"
    ):
        replay(model, unknown, tokenizer=tokenizer, spans={"a": (0, 3)}, unchecked=True)
    with pytest.raises(KindError, match="span 'a' as two numbers or two texts"):
        replay(model, answered(tmp_path, "vLLM", tokens), tokenizer=tokenizer, spans={"a": 3})
    table = torch.nn.Sequential(torch.nn.Embedding(tokenizer.words, 8), torch.nn.Linear(8, tokenizer.words))
    with pytest.raises(InputError, match="a model with attention, got Sequential"):
        replay(table, answered(tmp_path, "vLLM", tokens), tokenizer=tokenizer, unchecked=True)


def test_the_model_is_left_as_it_was(model_and_tokenizer, tokens, tmp_path):
    model, tokenizer = model_and_tokenizer
    prompt, ids, *_ = tokens
    before = model(torch.tensor([[*prompt, *ids]]))
    replay(model, answered(tmp_path, "vLLM", tokens), tokenizer=tokenizer, spans=SPANS)
    assert torch.equal(model(torch.tensor([[*prompt, *ids]])), before)
    with record(model) as recording:
        model(torch.tensor([prompt]))
    assert len(recording) == 2


def test_a_chat_has_a_span_for_each_message(tokens, tmp_path):
    from tokenizers import Tokenizer as Pieces
    from tokenizers import models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    names = ["<pad>", "<unk>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>", *dict.fromkeys(WORDS)]
    pieces = Pieces(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="<unk>"))
    pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for m in messages %}<|{{ m.role }}|> {{ m.content }} <|end|> {% endfor %}<|assistant|> "
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces, pad_token="<pad>", unk_token="<unk>", chat_template=template)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]})
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **sizes)).eval()
    messages = [
        {"role": "system", "content": "the cat sat"},
        {"role": "user", "content": "a dog ran"},
        {"role": "user", "content": "and then"},
    ]
    ids = tokenizer("the mat .", add_special_tokens=False)["input_ids"]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    prompt = tokenizer(text, add_special_tokens=False)["input_ids"]
    response = DIALECTS["llama.cpp chat"](prompt, ids, ["x"] * 3, log_probabilities(model, prompt, ids), "the mat .")
    answer = logged(tmp_path, {"request": {"messages": messages}, "response": response}).answers[0]
    result = replay(model, answer, tokenizer=tokenizer)
    assert result.check.holds
    assert {each.name: each.tokens for each in result.spans} == {
        "system": 3, "user": 3, "user 2": 2, "answer so far": 3, "other": 7,
    }  # fmt: skip
    assert "put into the tokenizer's template" in result.notes[0]


def test_a_token_that_is_a_part_of_a_character_says_which(tmp_path):
    from tokenizers import Tokenizer as Pieces
    from tokenizers import decoders, models, pre_tokenizers, trainers

    pieces = Pieces(models.BPE())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    pieces.train_from_iterator([" ".join(WORDS)], trainers.BpeTrainer(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    torch.manual_seed(0)
    model = LanguageModel(pieces.get_vocab_size(), width=16, heads=2, layers=1, feed_forward=16).eval()
    prompt, ids = pieces.encode("the cat 😀 sat").ids, pieces.encode(" on é").ids
    record = vllm_completion(prompt, ids, ["x"] * len(ids), log_probabilities(model, prompt, ids), " on é")
    answer = logged(tmp_path, {"request": {"prompt": "the cat 😀 sat"}, "response": record}).answers[0]
    result = replay(model, answer, tokenizer=pieces, spans={"sat": (10, 13), "cat": ("cat", "😀")})
    assert [word for word in result.words if "[" in word] == [*(f"😀[{part}/4]" for part in range(1, 5)), "é[1/2]", "é[2/2]"]
    assert result.spans[0].tokens == len(pieces.encode(" sat").ids)
    assert result.check.holds
