//! Arrows between crates point one way, and a vendor's name is written in one place.

use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};

/// Each layer may use the ones before it; within the first, also each other.
const LAYERS: &[&[&str]] = &[
    &["holdfast-proto", "holdfast-types"],
    &["holdfast-kit"],
    &["holdfast-egress", "holdfast-proxy"],
    &[
        "holdfast-browser",
        "holdfast-bus",
        "holdfast-console",
        // What it reads is read in a process of its own.
        "holdfast-documents",
        "holdfast-doors",
        "holdfast-embed",
        "holdfast-grpc",
        "holdfast-llm",
        "holdfast-lock",
        "holdfast-mcp",
        "holdfast-pg",
        "holdfast-recall",
        "holdfast-sandbox",
    ],
    &["holdfast-sandbox-pods", "holdfast-schedule", "holdfast-work"],
    &["holdfast-directory", "holdfast-session", "holdfast-workspace"],
    &["holdfast-agent", "holdfast-rollback", "holdfast-tools"],
    // Skills are shown to agents, and people have files and memories there.
    &["holdfast-people", "holdfast-skills"],
    // A proposal may be of a skill.
    &["holdfast-proposals"],
    // A service never depends on a service: they are of one layer.
    &["agent-runner", "channel-bridge", "gateway", "memory", "operator", "scheduler", "secrets"],
    &["holdfast"],
    // Nothing is above the tests, so nothing that ships can use them.
    &["holdfast-testkit", "holdfast-testkit-kube", "holdfast-tests"],
];

/// The only crates that may name a vendor; everyone else goes through them.
const VENDORS: &[(&str, &[&str])] = &[
    ("async-nats", &["holdfast-bus", "holdfast-testkit"]),
    ("redis", &["holdfast-lock", "holdfast-testkit"]),
    (
        "sqlx",
        &[
            "holdfast-directory",
            "holdfast-pg",
            "holdfast-proposals",
            "holdfast-schedule",
            "holdfast-session",
            "holdfast-testkit",
            "holdfast-tests",
            "holdfast-work",
            "holdfast-workspace",
            "memory",
        ],
    ),
    (
        "tonic",
        &[
            "channel-bridge",
            "gateway",
            "holdfast",
            "holdfast-grpc",
            // The collector of traces is reached by gRPC.
            "holdfast-kit",
            "holdfast-proto",
            "memory",
            "operator",
            "secrets",
            // The collector of tests.
            "holdfast-testkit",
            TESTS,
        ],
    ),
    (
        "axum",
        &[
            "channel-bridge",
            "gateway",
            "holdfast-doors",
            "holdfast-embed",
            "holdfast-testkit",
            "holdfast-testkit-kube",
            "memory",
            "secrets",
            TESTS,
        ],
    ),
    (
        "reqwest",
        &[
            "agent-runner",
            "channel-bridge",
            "gateway",
            "holdfast",
            "holdfast-egress",
            "holdfast-embed",
            "holdfast-llm",
            "holdfast-mcp",
            "holdfast-skills",
            "holdfast-tools",
            TESTS,
        ],
    ),
    ("k8s-openapi", &["holdfast-sandbox-pods", "operator"]),
    ("kube", &["holdfast-sandbox-pods", "operator"]),
    ("kube-cel", &["holdfast-testkit-kube"]),
    ("rmcp", &["holdfast-mcp", TESTS]),
    (
        "reqwest",
        &[
            "agent-runner",
            "channel-bridge",
            "gateway",
            "holdfast",
            "holdfast-egress",
            "holdfast-embed",
            "holdfast-llm",
            "holdfast-mcp",
            "holdfast-skills",
            "holdfast-tools",
            TESTS,
        ],
    ),
    (
        "tokio-tungstenite",
        &[
            "channel-bridge",
            "gateway",
            "holdfast-browser",
            "holdfast-sandbox-pods",
            "holdfast-testkit",
            "holdfast-testkit-kube",
            TESTS,
        ],
    ),
    ("clap", &["holdfast", TESTS]),
];
const TESTS: &str = "holdfast-tests";

/// Crates of pure functions, without side effects.
const PURE: &[&str] = &["holdfast-agent", "holdfast-schedule"];

/// What these must not know.
const IMPURE: &[&str] = &["axum", "metrics", "reqwest", "sqlx", "tokio", "tonic", "tracing"];

fn metadata() -> Metadata {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap()
}

fn layer_of(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

/// What is wrong with a crate that uses these.
fn wrongs<'a>(name: &str, used: impl Iterator<Item = &'a str>) -> Vec<String> {
    let Some(own) = layer_of(name) else { return vec![format!("{name} is in no layer")] };
    let last = LAYERS.len() - 1;
    let mut wrong = Vec::new();
    for used in used {
        // The first layer's crates and the tests' may use each other.
        let is_free = |theirs: usize| theirs < own || (theirs == own && (own == 0 || own == last));
        if layer_of(used).is_some_and(|theirs| !is_free(theirs)) {
            wrong.push(format!("{name} must not use {used}"));
        }
        if VENDORS.iter().any(|(vendor, may)| *vendor == used && !may.contains(&name)) {
            wrong.push(format!("{name} must not use {used} directly"));
        }
    }
    wrong
}

/// Dependencies that a crate of pure functions must not have. Those of a feature do not count.
fn side_effects<'a>(name: &str, used: impl Iterator<Item = &'a str>) -> Vec<String> {
    used.filter(|used| PURE.contains(&name) && IMPURE.contains(used))
        .map(|used| format!("{name} has no side effects: it must not use {used}"))
        .collect()
}

#[test]
fn dependencies_point_one_way() {
    let mut wrong = Vec::new();
    for package in metadata().workspace_packages() {
        let name = package.name.as_str();
        let used =
            package.dependencies.iter().filter(|used| used.kind != DependencyKind::Development);
        wrong.extend(wrongs(name, used.clone().map(|used| used.name.as_str())));
        let always = used.filter(|used| !used.optional);
        wrong.extend(side_effects(name, always.map(|used| used.name.as_str())));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_crate_in_the_layers_is_there() {
    let metadata = metadata();
    let names: Vec<&str> =
        metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect();

    for name in LAYERS.iter().copied().flatten() {
        assert!(names.contains(name), "{name} is drawn and not built");
    }
}

#[test]
fn an_arrow_that_points_the_wrong_way_is_seen() {
    for (name, used) in [
        ("holdfast-types", "holdfast-kit"),
        ("holdfast-bus", "holdfast-lock"),
        ("gateway", "agent-runner"),
        ("agent-runner", "holdfast-testkit"),
        ("gateway", "async-nats"),
    ] {
        assert_eq!(wrongs(name, [used].into_iter()).len(), 1, "{name} → {used}");
    }
    for name in PURE {
        assert_eq!(side_effects(name, ["tokio"].into_iter()).len(), 1, "{name} → tokio");
    }
    assert!(side_effects("gateway", ["tokio"].into_iter()).is_empty());
    assert!(wrongs("holdfast-types", ["holdfast-proto"].into_iter()).is_empty());
    assert_eq!(wrongs("newcomer", std::iter::empty()), ["newcomer is in no layer"]);
}

#[test]
fn versions_are_chosen_once_and_lints_are_everybodys() {
    for package in metadata().workspace_packages() {
        let path: &Path = package.manifest_path.as_std_path();
        let manifest = std::fs::read_to_string(path).unwrap();

        assert!(
            manifest.contains("[lints]\nworkspace = true"),
            "{}: add `[lints] workspace = true`",
            path.display()
        );
        let own = own_versions(&manifest);
        assert!(own.is_empty(), "{}: {own:?}: versions are in the root manifest", path.display());
    }
}

/// The lines of a manifest that choose a version of a dependency themselves.
fn own_versions(manifest: &str) -> Vec<(usize, &str)> {
    let mut in_dependencies = false;
    let mut found = Vec::new();
    for (at, line) in manifest.lines().enumerate() {
        if line.starts_with('[') {
            in_dependencies = line.ends_with("dependencies]");
        } else if in_dependencies && line.contains('=') && !line.contains("workspace = true") {
            found.push((at + 1, line));
        }
    }
    found
}

#[test]
fn a_version_of_ones_own_is_seen() {
    let manifest = "[dependencies]\na.workspace = true\nb = { workspace = true }\n\
                    [dev-dependencies]\nc = \"1\"\n[features]\nd = []\n";

    assert_eq!(own_versions(manifest), [(5, "c = \"1\"")]);
}
