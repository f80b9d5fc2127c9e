"""What heads add to a logit: on how many models the sum holds, and how it agrees with ablation."""

from collections import Counter

from pictures import result, table

from shown import made

MEASURES = ["contribution", "gradient × input", "norm", "largest weight", "random"]
DIRECT = "spearman, direct"


def bounded() -> str:
    """On how many models the parts sum to the logits, and which were refused."""
    data = result("contributions")
    models, counts = data["models"], data["counts"]
    architectures = {row["class"] for row in models if row["verdict"] == "holds"}
    largest = max(abs(row["residual"]) / row["bound"] for row in models if row["verdict"] == "holds")
    refused = Counter(row["name"] for row in models if row["verdict"] == "refused")
    names = ", ".join(f"`{name}`" for name in sorted(refused))
    return (
        f"At {made(data)}, the sum holds on {counts['holds']} models of {len(architectures)} architectures, where the largest residual is "
        f"{largest:.2f} of its bound. {counts.get('fails', 0)} fail. {counts['refused']} models of {len(refused)} architectures are "
        f"refused with a sentence that says what is not linear or was not recorded: {names}. {counts['not built']} could not be made small."
    )


def scores() -> str:
    """On how many models the parts of a score sum to it, and why the others are refused."""
    data, others = result("contributions"), result("contributions-scores")
    counts, models = data["scores"], others["models"]
    count = Counter(row["verdict"] for row in models)
    refused = [row for row in models if row["verdict"] == "refused"]
    parts = [row["name"] for row in refused if "one text in each call" in row["why"]]
    unlike = [row["name"] for row in refused if row["name"] not in parts]
    reasons = [f"a layer cuts one input into parts or streams ({_listed(parts)})"] if parts else []
    reasons += (
        [f"another run of the model differs, or a head has no product of query and key ({_listed(unlike)})"] if unlike else []
    )
    return (
        f"At {made(data)}, the parts of a score hold on {counts['holds']} of the {counts['covered']} models that attend and whose "
        f"contributions hold ({counts['holds'] / counts['covered']:.0%}); {counts.get('differs', 0)} differ. At {made(others)}, of "
        f"{count['holds'] + count['differs'] + len(refused)} other kinds of model that attend, the parts of scores of the first, the "
        f"middle and the last attention hold on {count['holds']} and differ on {count['differs']}. {len(refused)} are refused, because "
        f"{' or '.join(reasons)}."
    )


def _listed(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def agreement() -> str:
    """Rank correlations of every measure with the effects of ablation, direct and total."""
    kinds = {name: _seeds(data) for name, data in result("contributions-agreement")["agreement"].items()}
    rows = [(measure, *(cell for seeds in kinds.values() for cell in _cells(measure, seeds))) for measure in MEASURES]
    heads = ["measure", *(f"{name}, {effect}" for name in kinds for effect in ("direct", "total"))]
    return table(rows, heads, "l" + "r" * 2 * len(kinds))


def models() -> str:
    """What the measures were compared on."""
    data = result("contributions-agreement")
    each = data["agreement"]
    words = _seeds(each["language model"])
    tags = [f"{row['tags right']:.0%}" for row in _seeds(each["tagger"])]
    losses = [f"{row['loss']:.2f}" for row in words]
    heads, sentences = each["translator"]["heads"], each["translator"]["texts"]
    return (
        f"On {data['machine']['processor']}, one thread, {made(data)}. The language model has three layers of four heads and repeats "
        f"what it read (loss {', '.join(losses)}); the tagger has three layers of four heads and gives {', '.join(tags)} of the tags of "
        f"UD-EWT's test sentences right (nothing was chosen on them); the translator is that of `overt translate`, {heads} "
        f"heads. {words[0]['texts']} texts a seed, {sentences} sentences of the translator; three numbers are seeds 0, 1 and 2."
    )


def _seeds(data: dict) -> list[dict]:
    """The runs of a model: one for each seed, or the one."""
    return list(data.values()) if "seed 0" in data else [data]


def _cells(measure: str, seeds: list[dict]) -> tuple[str, str]:
    direct, total = ([row[measure][key] for row in seeds] for key in (DIRECT, "spearman"))
    spread = max(row[measure]["spread"] for row in seeds)
    return _numbers(direct), f"{_numbers(total)} (± {spread:.2f})"


def _numbers(values: list[float]) -> str:
    return " / ".join(f"{value:.2f}" for value in values).replace("-", "−")
