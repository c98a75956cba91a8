#!/usr/bin/env python3
"""Writes crates/llm/catalogue.json from a public list of models and from what we add by hand.

    models.py extract FILE --version VERSION
                         takes the entries that we use from LiteLLM's model_prices_and_context_window.json
                         (in its Python package: litellm/model_prices_and_context_window_backup.json)
                         into crates/llm/models/list.json
    models.py write      makes crates/llm/catalogue.json of list.json and ours.json
    models.py check      fails if catalogue.json is not what `write` makes

Prices are thousandths of a US dollar per million tokens, rounded half up. `ours.json` says which
models there are, and how their thinking is controlled; what it says of a model replaces what the
list says.
"""

import argparse
import datetime
import decimal
import json
import re
import sys
from pathlib import Path

LLM = Path(__file__).resolve().parents[2] / "crates" / "llm"
LIST, OURS = LLM / "models" / "list.json", LLM / "models" / "ours.json"
CATALOGUE = LLM / "catalogue.json"

# Names of vendors in the list, and ours.
VENDORS = {
    "anthropic": "anthropic", "dashscope": "qwen", "deepseek": "deepseek", "gemini": "gemini", "groq": "groq",
    "minimax": "minimax", "mistral": "mistral", "moonshot": "moonshot", "openai": "openai",
    "volcengine": "volcengine", "xai": "xai", "zai": "zhipu",
}
# Fields of the list that are read.
FIELDS = {
    "litellm_provider", "mode", "max_input_tokens", "max_output_tokens", "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost", "cache_creation_input_token_cost", "cache_creation_input_token_cost_above_1hr",
    "cache_creation_input_token_cost_above_12hr", "input_cost_per_audio_token", "output_cost_per_audio_token",
    "input_cost_per_image_token", "output_cost_per_image_token", "output_cost_per_reasoning_token",
    "input_cost_per_character", "search_context_cost_per_query", "supports_function_calling", "supports_vision",
    "deprecation_date", "successor_model", "tiered_pricing",
}
WRITTEN = "cache_creation_input_token_cost"
# Lifetimes of a cache that are longer than the usual one.
LONG_LIFETIMES = ("_above_1hr", "_above_12hr")
# A price in requests with more than so many tokens.
LONG_REQUEST = re.compile(r".*_above_\d+k_tokens")
# Where a vendor names no limit of the output, a quarter of the context, and no more than this.
MAX_OUTPUT = 131_072


def read(path):
    return json.loads(path.read_text(encoding="utf-8"), parse_float=decimal.Decimal)


def is_field(name):
    """Whether a field is read: those above, and their prices in long requests at the usual speed."""
    base, _, _ = name.rpartition("_above_")
    return name in FIELDS or (base in FIELDS and LONG_REQUEST.fullmatch(name) is not None)


def extract(source, version, read_on):
    """Returns the entries of the whole list that ours.json names, and those that are retired."""
    whole, ours = read(source), read(OURS)
    wanted = {entry["list"] for entry in ours["models"].values() if "list" in entry}
    missing = sorted(wanted - whole.keys())
    if missing:
        raise SystemExit(f"error: the list has no {', '.join(missing)}: correct crates/llm/models/ours.json")
    models, retired = {}, {}
    for name, entry in sorted(whole.items()):
        if name in wanted:
            models[name] = {field: entry[field] for field in sorted(entry) if is_field(field)}
        is_ours = entry.get("litellm_provider") in VENDORS and entry.get("mode") in ("chat", "responses")
        # Fine-tuned models are those of one customer.
        if is_ours and entry.get("deprecation_date") and not name.startswith("ft:"):
            fields = ("litellm_provider", "deprecation_date", "successor_model")
            retired[name] = {field: entry[field] for field in fields if field in entry}
    return {
        "source": "https://github.com/BerriAI/litellm/blob/main/model_prices_and_context_window.json",
        "licence": "MIT, Copyright (c) 2023 Berri AI",
        "version": version,
        "read_on": read_on,
        "models": models,
        "retired": retired,
    }


def price(dollars):
    """Dollars per token as thousandths of a dollar per million tokens."""
    thousandths = decimal.Decimal(dollars) * 1_000_000_000
    return int(thousandths.quantize(decimal.Decimal(1), rounding=decimal.ROUND_HALF_UP))


def first_price(entry, *fields):
    return next((price(entry[field]) for field in fields if entry.get(field) is not None), None)


def text_prices(entry, suffix=""):
    """Prices of text: plain ones, or those of requests above a size."""
    prices = {
        "input": first_price(entry, f"input_cost_per_token{suffix}", f"input_cost_per_character{suffix}"),
        "cached": first_price(entry, f"cache_read_input_token_cost{suffix}"),
        "written": first_price(entry, f"{WRITTEN}{suffix}"),
        "written_long": first_price(entry, *(f"{WRITTEN}{life}{suffix}" for life in LONG_LIFETIMES)),
        "output": first_price(entry, f"output_cost_per_token{suffix}", f"output_cost_per_image_token{suffix}"),
    }
    # The list has 0 where writing is not charged beside reading.
    if prices["written"] == 0:
        prices["written"] = None
    return {kind: value for kind, value in prices.items() if value is not None}


def prices_of(entry, search):
    """Returns the prices of an entry, or None if it has none. `search` is the vendor's usual price of a search."""
    tiers = entry.get("tiered_pricing")
    if tiers:
        entry = {**entry, **tiers[0]}
    prices = text_prices(entry)
    if "input" not in prices:
        return None
    prices.setdefault("output", prices["input"])
    for kind, field in (("audio_input", "input_cost_per_audio_token"), ("audio_output", "output_cost_per_audio_token"),
                        ("image_input", "input_cost_per_image_token"), ("image_output", "output_cost_per_image_token"),
                        ("reasoning", "output_cost_per_reasoning_token")):
        value = first_price(entry, field)
        whole = prices["input" if kind.endswith("_input") else "output"]
        if value is not None and value != whole:
            prices[kind] = value
    searches = entry.get("search_context_cost_per_query", {}).get("search_context_size_medium")
    if searches:
        prices["search"] = int(searches * 1_000_000)
    elif search is not None:
        prices["search"] = search
    if tiers and len(tiers) > 1:
        # A card has one step. The highest of the others is never too little.
        last = text_prices(tiers[-1])
        prices["long"] = {"over": int(tiers[1]["range"][0]), **last}
    sizes = sorted({
        int(field.removeprefix("input_cost_per_token_above_").removesuffix("k_tokens"))
        for field in entry if field.startswith("input_cost_per_token_above_")
    })
    if sizes:
        long = {**{"output": prices["output"]}, **text_prices(entry, f"_above_{sizes[0]}k_tokens")}
        prices["long"] = {"over": sizes[0] * 1_000, **long}
    return prices


def card(name, entry, ours, search):
    """Returns the catalogue's entry of a model."""
    context = entry.get("max_input_tokens", 0)
    output = entry.get("max_output_tokens", 0)
    if output >= context > 0:
        output = min(context // 4, MAX_OUTPUT)
    made = {
        "context": int(context),
        "max_output": int(output),
        "tools": bool(entry.get("supports_function_calling")),
        "images": bool(entry.get("supports_vision")),
    }
    prices = prices_of(entry, search)
    if prices is not None:
        made["prices"] = prices
    made.update({field: value for field, value in ours.items() if field not in ("list", "source")})
    if "list" not in ours and "source" not in ours:
        raise SystemExit(f"error: {name} is in no list: write a `source` in crates/llm/models/ours.json")
    if not made["context"]:
        raise SystemExit(f"error: {name} has no context: write one in crates/llm/models/ours.json")
    return made


def retirements(public, ours):
    """Returns when models are switched off, and what takes their place."""
    names = {entry["list"]: name for name, entry in ours["models"].items() if "list" in entry}
    made = {}
    for listed, entry in public["retired"].items():
        vendor = VENDORS[entry["litellm_provider"]]
        name = names.get(listed) or f"{vendor}:{listed.split('/', 1)[-1]}"
        successor = names.get(entry.get("successor_model")) or ours["suggested"][vendor]
        # The list may name one that is switched off itself.
        seen = set()
        while successor not in seen:
            seen.add(successor)
            after = public["retired"].get(ours["models"][successor].get("list", ""), {}).get("successor_model")
            successor = names.get(after, successor)
        made[name] = {"on": entry["deprecation_date"], "use": successor}
    made.update(ours["retired"])
    return dict(sorted(made.items()))


def catalogue():
    """Returns the text of catalogue.json."""
    public, ours = read(LIST), read(OURS)
    models = {
        name: card(name, public["models"].get(entry.get("list"), {}), entry, ours["searches"].get(name.split(":")[0]))
        for name, entry in ours["models"].items()
    }
    parts = {
        "as_of": public["read_on"],
        "providers": ours["providers"],
        "suggested": list(ours["suggested"].values()),
        "retired": retirements(public, ours),
        "aliases": ours["aliases"],
        "models": models,
    }
    return "{\n" + ",\n".join(f"  {json.dumps(key)}: {block(value)}" for key, value in parts.items()) + "\n}\n"


def block(value):
    """JSON with one line for each member."""
    if not isinstance(value, dict):
        return json.dumps(value, default=str)
    lines = (f"    {json.dumps(key)}: {json.dumps(member, ensure_ascii=False)}" for key, member in value.items())
    return "{\n" + ",\n".join(lines) + "\n  }"


def as_number(value):
    """The list has prices like 2.5e-06, which are kept as they are."""
    return float(value)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    extracting = commands.add_parser("extract", help="take the entries that we use from the public list")
    extracting.add_argument("file", type=Path, help="model_prices_and_context_window.json")
    extracting.add_argument("--version", required=True, help="of the list, such as `litellm 1.110.2`")
    extracting.add_argument("--read-on", default=datetime.date.today().isoformat(), help="date; today if absent")
    commands.add_parser("write", help="write the catalogue")
    commands.add_parser("check", help="compare the catalogue with what `write` makes")
    options = parser.parse_args()
    if options.command == "extract":
        made = extract(options.file, options.version, options.read_on)
        LIST.write_text(json.dumps(made, indent=1, default=as_number, ensure_ascii=False) + "\n", encoding="utf-8")
    elif options.command == "write":
        CATALOGUE.write_text(catalogue(), encoding="utf-8")
    elif CATALOGUE.read_text(encoding="utf-8") != catalogue():
        print("error: crates/llm/catalogue.json is out of date: run `make models ARGS=write`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
