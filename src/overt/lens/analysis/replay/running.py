"""Run a server's answer again through the same weights."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from overt.errors import InputError, OvertError
from overt.lens.analysis.observing import evaluated, observing
from overt.lens.analysis.replay.dialects import LoggedAnswer
from overt.lens.analysis.replay.result import BOUND, Replay, ReplayCheck, SpanReading, check_bound
from overt.lens.analysis.replay.sequences import TokenSequence, token_sequence
from overt.lens.analysis.replay.spans import span_members
from overt.lens.analysis.replay.spans_read import SpanMasses, without_keys
from overt.lens.capture.recordable import recordable
from overt.lens.text.texts import Texts


def replay(
    model: nn.Module,
    answer: LoggedAnswer,
    *,
    tokenizer: Any,
    spans: Mapping[str, Any] | None = None,
    bound: float = BOUND,
    unchecked: bool = False,
) -> Replay:
    """Run a logged answer again through the server's model, compare log probabilities, and measure which spans it read and needed.

    `model` predicts the next token: a language model of overt or of Hugging Face, with the server's weights. `answer` is one of
    `overt.lens.read_log(path).answers`. `spans` are parts of the prompt by their names: (0, 120), characters of the prompt, or
    ("<doc>", "</doc>"), from one marker to another; without them, each message of a chat, or the whole prompt.

    Each span has two numbers for each token of the answer. **Mass**: the weight on the span in the row that predicts the token, a mean
    over heads. **Change**: the log probability of the token minus the one with the span knocked out (its keys masked for all other
    tokens in every layer, positions unchanged), which takes another pass for each span. Neither follows from the other.

    The replay is checked first. No span is explained unless `unchecked`, if the mean difference of log probabilities is beyond `bound`
    nats, or one is beyond ten times that (weights quantised otherwise, other tokens), or if the log has no log probabilities.

    Raises InputError for tokens of another vocabulary, for spans that overlap or leave the prompt, and for a model without attention.

    >>> import torch, overt
    >>> from overt.learn.data.tokenizer import Tokenizer
    >>> from overt.lens.analysis.replay.dialects import LoggedAnswer
    >>> tokenizer = Tokenizer.learn(["the cat sat on the mat"] * 9, merges=20)
    >>> model = overt.models.LanguageModel(tokenizer.words, width=16, heads=2, layers=1, feed_forward=16).eval()
    >>> answer = LoggedAnswer(1, "one", "vLLM", " mat", prompt="the cat sat on the", ids=tokenizer.encode(" mat"))
    >>> replayed = overt.lens.replay(model, answer, tokenizer=tokenizer, spans={"who": (0, 7)}, unchecked=True)
    >>> [each.name for each in replayed.spans], round(float(sum(each.mass[0] for each in replayed.spans)), 6)
    (['who', 'answer so far', 'other'], 1.0)
    """
    model = recordable(model)
    check_bound(bound)
    Texts.with_tokenizer(tokenizer, model)  # which refuses one of another vocabulary
    sequence = token_sequence(answer, tokenizer)
    members = span_members(answer, sequence, spans)
    with evaluated(model):
        return _replayed(model, answer, sequence, members, bound, unchecked)


def _replayed(
    model: nn.Module,
    answer: LoggedAnswer,
    sequence: TokenSequence,
    members: dict[str, np.ndarray],
    bound: float,
    unchecked: bool,
) -> Replay:
    runner = _Runner(model, sequence)
    masses = SpanMasses(np.array([*members.values()], np.float32), sequence.prompt - 1, len(sequence.ids) - 1)
    with observing(model, masses, masses.compute) as recorder:
        logits = runner.logits()
    check = checked(answer, sequence.logprobs, logits, runner.answer, bound)
    missing = [f"{name}: {reason}" for name, reason in recorder.missing]
    notes = (*sequence.notes, *(f"not included: {absence}" for absence in missing))
    if not check.holds and not unchecked:
        refused = _refusal(answer, check)
        return Replay(answer, sequence.words, sequence.prompt, check, notes=notes, refused=refused)
    if not masses.masses:
        got = type(model).__name__ + (f" ({'; '.join(missing)})" if missing else "")
        raise InputError("a model with attention", got=got)
    heads = [(*call, head) for call, mass in masses.masses.items() for head in range(len(mass))]
    by_head = np.concatenate([*masses.masses.values()])  # (heads, A, spans)
    before, readings = log_probabilities(logits, runner.answer), []
    for index, (name, inside) in enumerate(members.items()):
        change = before - runner.without(inside) if inside[:-1].any() else np.zeros(len(before))
        mass = by_head[..., index]
        readings.append(SpanReading(name, int(inside.sum()), mass.mean(0), change, mass))
    return Replay(answer, sequence.words, sequence.prompt, check, readings, heads, notes)


def _refusal(answer: LoggedAnswer, check: ReplayCheck) -> str:
    if not check.compared:
        got = "log probabilities after sampling" if answer.after_sampling else "none"
        error = InputError(
            "log probabilities in the log, to check that the replay repeats the server's run",
            got=got,
            fix="ask the server for logprobs, or explain it unchecked: unchecked=True, --unchecked",
        )
    else:
        error = InputError(
            f"replayed log probabilities within {check.bound:g} nats of the server's, {10 * check.bound:g} at most",
            got=f"{check.mean:.3g} on average and {check.largest:.3g} at most",
            fix="pass the weights and tokenizer that the server ran, raise the bound, or explain it unchecked: unchecked=True, --unchecked",
        )
    return str(error)


def checked(answer: LoggedAnswer, logprobs: list[float | None], logits: Tensor, ids: Tensor, bound: float) -> ReplayCheck:
    """Compare the log probabilities of the answer, also at the requested temperature, which some servers apply first."""
    values = [] if answer.after_sampling else logprobs
    server = np.array([np.nan if value is None else value for value in values] or [np.nan] * len(ids))
    checks = [ReplayCheck(server, log_probabilities(logits, ids), bound)]
    if answer.temperature not in (None, 0.0, 1.0) and checks[0].compared:
        assert answer.temperature is not None
        checks.append(ReplayCheck(server, log_probabilities(logits / answer.temperature, ids), bound, answer.temperature))
    return min(checks, key=lambda check: check.mean) if len(checks) > 1 else checks[0]


def log_probabilities(logits: Tensor, ids: Tensor) -> np.ndarray:
    """The log probabilities (A,) of the tokens `ids` under logits (A, words)."""
    chosen = logits.float().log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    return chosen.double().cpu().numpy()


class _Runner:
    """Runs the model on a sequence and returns the logits (A, words) that predict the answer's tokens."""

    def __init__(self, model: nn.Module, sequence: TokenSequence):
        device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
        self.model, self.prompt = model, sequence.prompt
        self.ids = torch.tensor([sequence.ids], device=device)
        self.answer = self.ids[0, sequence.prompt :]
        self.parameters = inspect.signature(model.forward).parameters

    def without(self, inside: np.ndarray) -> np.ndarray:
        """The log probabilities of the answer with the keys `inside` masked."""
        with without_keys(self.model, torch.tensor(~inside)):
            logits = self.logits()
        return log_probabilities(logits, self.answer)

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Run the model once on all tokens, with only the answer's logits if it can."""
        count = len(self.answer) + 1
        options: dict[str, Any] = {"use_cache": False} if "use_cache" in self.parameters else {}
        if "logits_to_keep" in self.parameters:
            options["logits_to_keep"] = count
        states, head = getattr(self.model, "states", None), getattr(self.model, "output", None)
        try:
            if callable(states) and callable(head):
                hidden: Any = states(self.ids)
                logits: Any = head(hidden[:, -count:])
            elif "input_ids" in self.parameters:
                logits = self.model(input_ids=self.ids, **options)
            else:
                logits = self.model(self.ids, **options)
        except OvertError:
            raise
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            got = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise InputError(
                f"a model that reads {self.ids.shape[1]} token ids", got=got, fix="pass the model that the server ran"
            ) from error
        logits = getattr(logits, "logits", logits)
        if not isinstance(logits, Tensor) or logits.ndim != 3:
            raise InputError(
                "a model that predicts the next token",
                got=type(self.model).__name__,
                fix="load it with its language-model head",
            )
        return logits[0, -count:-1]
