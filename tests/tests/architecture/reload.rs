//! docs/configuration.md marks the settings that a running process takes over.

use std::{collections::BTreeSet, fs, path::Path};

use holdfast_kit::config::reload::RELOADED_SETTINGS;

/// Names of the settings whose row of a table has the mark.
fn marked(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|line| line.strip_suffix(" Reloads. |")?.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn the_settings_that_reload_are_those_that_are_marked() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let docs = fs::read_to_string(docs).unwrap();

    assert_eq!(
        marked(&docs),
        BTreeSet::from(RELOADED_SETTINGS),
        "docs/configuration.md marks others"
    );
}
