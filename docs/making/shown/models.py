"""The matrix of models: how many of each verdict, and one row a model in a table that can be searched."""

import html
from typing import Any

from pictures import result, table

WAYS = {"recording eager": "recorded, eager", "recording sdpa": "recorded, sdpa", "backend": "on overt's kernels"}
RECORDED = ("recording eager", "recording sdpa")
VERDICTS = ("exact", "whole", "missing", "refused", "wrong", "crashed")
LIBRARIES = ("transformers", "torch", "timm", "x-transformers", "torch-geometric", "flash-linear-attention")
STYLE = """
<style>
.models-rows { overflow-x: auto; max-height: 44rem; overflow-y: auto; border: 1px solid var(--line); border-radius: 6px; }
.models-rows table { border-collapse: collapse; width: 100%; font-size: .64rem; }
.models-rows th { position: sticky; top: 0; background: var(--wash); text-align: left; z-index: 1; }
.models-rows td, .models-rows th { padding: .3rem .5rem; vertical-align: top; border-bottom: 1px solid var(--line); min-width: 7rem; }
.models-rows small { display: block; color: var(--quiet); overflow-wrap: anywhere; max-width: 22rem; }
.models-rows b.wrong, .models-rows b.crashed { color: var(--fire-ink); }
.models-rows b.exact, .models-rows b.whole { color: var(--blue-ink); }
.models-find { display: flex; flex-wrap: wrap; gap: .5rem; margin: .6rem 0; align-items: center; }
.models-find input, .models-find select { font: inherit; padding: .3rem .5rem; border: 1px solid var(--line); border-radius: 6px;
  background: var(--card); color: var(--ink); min-width: 0; flex: 1 1 9rem; }
</style>
"""
SCRIPT = """
<script>
(() => {
  const box = document.querySelector(".models"), text = box.querySelector("input"), kind = box.querySelector("select");
  const rows = [...box.querySelectorAll("tbody tr")].map(row => [row, row.textContent.toLowerCase()]), count = box.querySelector("output");
  const filter = () => {
    const words = text.value.toLowerCase().split(/\\s+/).filter(Boolean);
    let shown = 0;
    for (const [row, content] of rows) {
      const fits = words.every(word => content.includes(word)) && (!kind.value || row.dataset.verdicts.split(" ").includes(kind.value));
      row.hidden = !fits;
      shown += fits;
    }
    count.textContent = `${shown} of ${rows.length} models`;
  };
  text.addEventListener("input", filter);
  kind.addEventListener("change", filter);
  filter();
})();
</script>
"""


def counts() -> str:
    """How many models there are of each verdict, by way, and how many by their edits."""
    measured = result("models")
    ways = measured["counts"]["ways"]
    rows = [(message, *(f"{ways[way].get(verdict, 0):,}" for verdict in VERDICTS)) for way, message in WAYS.items()]
    verdicts = [verdict["verdict"] for line in measured["models"] if (verdict := edit_verdict(line))]
    rows.append(("edited", *(f"{verdicts.count(verdict):,}" for verdict in VERDICTS)))
    return table(rows, ["", *VERDICTS], "lrrrrrr")


def edit_verdict(line: dict[str, Any]) -> dict[str, Any] | None:
    """The verdict of a model's edited arcs in both ways together; None without an arc to remove."""
    ways = [line[way] for way in RECORDED if line.get(way, {}).get("edits")]
    if not ways:
        return None
    edits, exact = (sum(way[name] for way in ways) for name in ("edits", "edited"))
    why = next((way["edit why"] for way in ways if "edit why" in way), "")
    verdict = "exact" if exact == edits else "refused" if ": InputError: " in why else "wrong"
    return {"verdict": verdict, "why": why or f"{edits:,} arcs"}


def built() -> str:
    """How many models of each library were built, of how many, and what else was used."""
    measured = result("models")
    rows = []
    for library in LIBRARIES:
        lines = [line for line in measured["models"] if line["library"] == library]
        there = [line for line in lines if "not built" not in line]
        if lines:
            rows.append((f"{library} {measured['versions'].get(library) or ''}", f"{len(there):,}", f"{len(lines):,}"))
    return table(rows, ["", "built", "of"], "lrr")


def families() -> str:
    """How many of the models that mix tokens by attention or a linear recurrence are recorded whole, and the others by name."""
    lines = [line for line in result("models")["models"] if "recording eager" in line]
    mixing = [line for line in lines if mixes(line["recording eager"])]
    whole = [line for line in mixing if is_whole(line["recording eager"])]
    linear = [line for line in whole if line["recording eager"].get("linear")]
    rest = [line for line in mixing if line not in whole]
    others = [
        line["name"] for line in lines if not mixes(line["recording eager"]) and line["recording eager"]["verdict"] != "exact"
    ]
    text = [
        f"**{len(whole):,} of {len(mixing):,} models that mix tokens by attention or a linear recurrence are recorded whole: "
        f"{len(whole) / len(mixing):.1%}.** {len(linear)} of them have linear recurrences.",
        f"The other {len(rest)}, with the first reason in `missing`:",
        table([(line["name"], first_reason(line["recording eager"])) for line in rest], ["", "why"], "ll"),
        f"{len(others)} models mix tokens by convolutions, pooling, Fourier transforms, matrices of parameters over tokens or LSTMs alone, "
        f"and each such layer stands in `missing`: {', '.join(others)}.",
    ]
    return "\n\n".join(text)


def edited() -> str:
    """In how many of the models that are recorded exactly edited arcs are exact too, and which are not."""
    measured = result("models")
    counted = measured["counts"]["edited"]
    verdicts = {line["name"]: verdict for line in measured["models"] if (verdict := edit_verdict(line))}
    reasons = [f"{name} ({verdict['why']})" for name, verdict in verdicts.items() if verdict["verdict"] != "exact"]
    others = f" Not exact: {'; '.join(reasons)}." if reasons else ""
    return (
        f"**{counted['exact']:,} of {counted['kinds']:,} models ({counted['exact'] / counted['kinds']:.1%})** that are recorded exactly "
        f"and have an arc to remove give the judge's outputs ({counted['exact edits']:,} of {counted['edits']:,} arcs).{others}"
    )


def mixes(verdict: dict[str, Any]) -> bool:
    """Whether the judges saw attention or a linear recurrence."""
    return bool(verdict.get("attended", 0) + verdict.get("linear", 0))


def is_whole(verdict: dict[str, Any]) -> bool:
    """Whether all attention and every linear recurrence that the judges saw is recorded."""
    return verdict["verdict"] in ("exact", "whole") and verdict["matched"] == verdict["attended"]


def first_reason(verdict: dict[str, Any]) -> str:
    """The first line of `missing` that is not about a convolution, without the layer's name."""
    if verdict["verdict"] in ("exact", "whole"):
        return "weights of a softmax over sampled points, branches or one learned query meet values element by element"
    reasons = [each.partition(": ")[2] for each in verdict.get("why", "").split("; ")]
    return next((each for each in reasons if " mixes tokens by a convolution" not in each), reasons[0])


def rows() -> str:
    """One row a model, as HTML: its verdicts and their reasons, with a field that filters them."""
    models = sorted(result("models")["models"], key=lambda line: (LIBRARIES.index(line["library"]), line["name"].lower()))
    heads = "".join(f"<th>{html.escape(each)}</th>" for each in ("model", *WAYS.values(), "edited"))
    options = "".join(f"<option>{verdict}</option>" for verdict in (*VERDICTS, "not-built"))
    body = "".join(map(row, models))
    return (
        f'{STYLE}<div class="models" data-search-exclude><div class="models-find">'
        '<input type="search" placeholder="name, kind or reason" aria-label="filter the models">'
        f'<select aria-label="verdict"><option value="">every verdict</option>{options}</select><output></output></div>'
        f'<div class="models-rows"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div></div>{SCRIPT}'
    )


def flash_linear() -> str:
    """The models of flash-linear-attention, step by step and in chunks."""
    rows = []
    for line in result("models-flash-linear")["models"]:
        short, long = (line[way] for way in ("recording eager", "recording sdpa"))
        counted = f"{short.get('linear recorded', 0)} of {short['linear']}" if short.get("linear") else "none that it knows"
        rows.append((line["class"], short["verdict"], counted, "not run" if long["verdict"] == "refused" else long["verdict"]))
    return table(rows, ["model", "step by step", "recurrences recorded", "in chunks"], "llll")


def graphs() -> str:
    """The layers of torch_geometric."""
    rows = []
    for line in result("models-graphs")["models"]:
        verdict = line.get("recording eager", {"verdict": "not built", "why": line.get("not built", "")})
        rows.append(
            (
                line["name"].partition("/")[2],
                verdict["verdict"],
                verdict.get("why", "").partition(" mixes tokens ")[2].partition(":")[0],
            )
        )
    return table(rows, ["layer", "recorded", "otherwise: mixes nodes"], "lll")


def row(line: dict[str, Any]) -> str:
    """One model."""
    name = f"<b>{html.escape(line['name'])}</b>{small(', '.join(filter(None, (line.get('kind', ''), line.get('class', '')))))}"
    if "not built" in line:
        return f'<tr data-verdicts="not-built"><td>{name}</td><td colspan="4">not built{small(line["not built"])}</td></tr>'
    verdicts = [*map(line.get, WAYS), edit_verdict(line)]
    cells = "".join(f"<td>{cell(verdict)}</td>" for verdict in verdicts)
    kinds = " ".join(dict.fromkeys(verdict["verdict"] for verdict in verdicts if verdict))
    return f'<tr data-verdicts="{kinds}"><td>{name}</td>{cells}</tr>'


def cell(verdict: dict[str, Any] | None) -> str:
    """One verdict, what was measured or why."""
    if verdict is None:
        return "–"
    message = verdict.get("why", "")
    if not message and "recorded" in verdict:
        message = f"{verdict['recorded']:,} calls"
    if not message and verdict.get("off") is not None:
        message = f"off by {verdict['off']:.0e}"
    return f'<b class="{html.escape(verdict["verdict"])}">{html.escape(verdict["verdict"])}</b>{small(message)}'


def small(text: str) -> str:
    """A line below, if there is one."""
    return f"<small>{html.escape(text)}</small>" if text else ""
