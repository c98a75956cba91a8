//! Features: binaries and tests must use the same features of a crate, or everything that depends
//! on it is built twice, which takes minutes on two cores.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
};

/// The features of each crate, as cargo resolves them with these edges.
fn features(edges: &str) -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--workspace", "--locked", "--prefix", "none", "-f", "{p}|{f}"])
        .args(["-e", edges])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&tree.stdout).lines() {
        if let Some((package, features)) = line.trim_end_matches(" (*)").split_once('|') {
            all.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
    }
    all
}

#[test]
fn tests_are_built_with_the_features_of_the_binaries() {
    let (binaries, tests) =
        (features("normal,no-proc-macro"), features("normal,dev,no-proc-macro"));
    let differs =
        |(package, features): &(&String, &BTreeSet<String>)| tests.get(*package) != Some(*features);

    let differ: Vec<_> =
        binaries.iter().filter(differs).map(|(package, _)| (package, tests.get(package))).collect();

    assert!(binaries.len() > 100, "{} crates", binaries.len());
    assert!(
        differ.is_empty(),
        "a crate that only tests need asks for more features: name them in Cargo.toml, as for \
         serde_json: {differ:#?}"
    );
}
