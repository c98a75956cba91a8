//! Every metric is described, and in the list of docs/metrics.md.

use std::{collections::BTreeSet, fs, path::Path};

use holdfast_kit::metrics::descriptions::{COUNTERS, GAUGES, HISTOGRAMS};

use super::sources;

/// Names that a source file records under.
fn recorded(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for call in ["counter!(", "gauge!(", "histogram!("] {
        for after in text.split(call).skip(1) {
            let name = after.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
            names.extend(name.map(str::to_owned));
        }
    }
    names
}

#[test]
fn each_metric_has_a_meaning_and_each_meaning_a_metric() {
    let mut used = BTreeSet::new();
    for source in sources::all() {
        let is_test = source.path.components().any(|part| part.as_os_str() == "tests");
        if !is_test {
            let code = source.text.split("#[cfg(test)]").next().unwrap_or_default();
            used.extend(recorded(code));
        }
    }
    let tables = COUNTERS.iter().chain(GAUGES).chain(HISTOGRAMS);
    let described: BTreeSet<String> = tables.clone().map(|(name, _)| (*name).to_owned()).collect();

    assert!(used.len() > 40, "only {} metrics found: is the scanner right?", used.len());
    assert_eq!(used, described, "crates/kit/src/metrics/descriptions.rs has another list");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let docs = fs::read_to_string(docs).unwrap();
    for (name, meaning) in tables {
        let row = format!("| `{name}` | {meaning} |");
        assert!(docs.contains(&row), "docs/metrics.md has no row {row}");
    }
}

#[test]
fn a_recorded_metric_is_seen() {
    let code = "metrics::counter!(\n    \"a_total\", \"b\" => c)\n metrics::gauge!(name)";

    assert_eq!(recorded(code), BTreeSet::from(["a_total".to_owned()]));
}
