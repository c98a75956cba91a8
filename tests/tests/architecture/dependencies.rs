//! Packages of others: where they come from, their licences, and versions that are there twice.

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{CargoOpt, Metadata, MetadataCommand, Package};

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Licences that allow the product to be shipped under its own.
const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Packages that are not used, with the reason.
const BANNED: [(&str, &str); 3] = [
    ("native-tls", "TLS is rustls"),
    ("openssl", "TLS is rustls, which needs no library of the system"),
    ("openssl-sys", "TLS is rustls, which needs no library of the system"),
];

/// Packages of which others need several versions, so that only they can change it.
const SEVERAL_VERSIONS: [&str; 22] = [
    "base64",
    "block-buffer",
    "cipher",
    "const-oid",
    "cpufeatures",
    "crypto-common",
    "digest",
    "foldhash",
    "getrandom",
    "hashbrown",
    "inout",
    "io-lifetimes",
    "md-5",
    "miniz_oxide",
    "nom",
    "rand",
    "rand_chacha",
    "rand_core",
    "sha2",
    "syn",
    "tower-http",
    "unicode-width",
];

/// The packages that a build for Linux uses.
fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let options = ["--offline", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"];
    MetadataCommand::new()
        .manifest_path(manifest)
        .features(CargoOpt::AllFeatures)
        .other_options(options.map(str::to_owned).to_vec())
        .exec()
        .unwrap()
}

fn packages_of_others(metadata: &Metadata) -> Vec<&Package> {
    let used: BTreeSet<_> =
        metadata.resolve.iter().flat_map(|resolve| &resolve.nodes).map(|node| &node.id).collect();
    let is_ours = |package: &Package| metadata.workspace_members.contains(&package.id);
    let packages = metadata.packages.iter();
    packages.filter(|package| used.contains(&package.id) && !is_ours(package)).collect()
}

/// Whether one licence of each alternative is allowed.
fn is_allowed(licence: &str) -> bool {
    let licence = licence.replace('/', " OR ");
    licence.split(" AND ").all(|part| {
        let part = part.trim().trim_start_matches('(').trim_end_matches(')');
        part.split(" OR ").any(|one| LICENCES.contains(&one.trim()))
    })
}

#[test]
fn packages_come_from_the_registry_and_their_licences_are_allowed() {
    let metadata = metadata();
    let mut wrong = Vec::new();
    for package in packages_of_others(&metadata) {
        let name = package.name.as_str();
        if package.source.as_ref().is_none_or(|source| source.repr != REGISTRY) {
            wrong.push(format!("{name} is not from the registry"));
        }
        let licence = package.license.as_deref().unwrap_or("none");
        if !is_allowed(licence) {
            wrong.push(format!("{name} has the licence {licence}"));
        }
        for (_, why) in BANNED.iter().filter(|(banned, _)| *banned == name) {
            wrong.push(format!("{name} is used: {why}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_other_package_is_there_in_several_versions() {
    let metadata = metadata();
    let mut versions: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for package in packages_of_others(&metadata) {
        versions.entry(package.name.as_str()).or_default().insert(package.version.to_string());
    }
    versions.retain(|_, versions| versions.len() > 1);

    let found: Vec<&str> = versions.keys().copied().collect();
    assert_eq!(found, SEVERAL_VERSIONS, "{versions:#?}");
}

#[test]
fn each_part_of_a_licence_needs_an_allowed_alternative() {
    for (licence, allowed) in [
        ("MIT OR Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("AGPL-3.0", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(licence), allowed, "{licence}");
    }
}
