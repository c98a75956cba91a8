//! Rules for every source file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::syntax;

/// A source file, and where it is from the root.
pub struct Source {
    pub path: PathBuf,
    pub text: String,
}

/// Every Rust file of the workspace.
pub fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<PathBuf> = ["cli", "crates", "proto", "services", "tests"]
        .iter()
        .map(|name| root.join(name))
        .collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let is_built =
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("target"));
            if path.is_dir() && !is_built {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                sources.push(Source { path: path.strip_prefix(root).unwrap().to_owned(), text });
            }
        }
    }
    assert!(sources.len() > 100, "only {} files found: is the root right?", sources.len());
    sources
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<PathBuf> = all()
        .into_iter()
        .filter(|source| !source.text.starts_with("//! "))
        .map(|source| source.path)
        .collect();

    assert!(silent.is_empty(), "these do not begin with `//! `: {silent:#?}");
}

/// Whether a line names all of a machine's addresses, outside a comment.
fn opens_to_all(line: &str) -> bool {
    let code = line.trim_start();
    let everywhere = ["0.0.0.0", "[0, 0, 0, 0]", "UNSPECIFIED", "[::]"];
    !code.starts_with("//") && everywhere.iter().any(|all| code.contains(all))
}

#[test]
fn nothing_listens_on_all_interfaces_unless_it_is_configured() {
    let here = Path::new("tests/tests/architecture");
    let mut open = Vec::new();
    for source in all().iter().filter(|source| !source.path.starts_with(here)) {
        for (at, line) in source.text.lines().enumerate().filter(|(_, line)| opens_to_all(line)) {
            open.push(format!("{}:{}: {}", source.path.display(), at + 1, line.trim()));
        }
    }
    // What refuses to send to such addresses has to name them.
    open.retain(|found| !found.starts_with("crates/kit/src/address.rs:"));
    assert!(open.is_empty(), "{open:#?}");
}

#[test]
fn http_clients_are_built_in_one_crate() {
    let builds = |text: &str| {
        // Redis has a builder with a similar name.
        let text = text.replace("SentinelClientBuilder::new(", "");
        ["reqwest::Client::new(", "Client::builder()", "ClientBuilder::new("]
            .iter()
            .any(|call| text.contains(call))
    };
    for parsed in syntax::production() {
        let path = parsed.source.path.display().to_string();
        // What follows the first `#[cfg(test)]` is no product code.
        let product = parsed.source.text.split("#[cfg(test)]").next().unwrap_or_default();
        assert!(
            !builds(product) || path.contains("crates/egress/"),
            "{path}: use `holdfast_egress::client_builder` or its `Guard`"
        );
    }
    assert!(builds("let client = Client::builder().build()"));
}

/// Files outside of `crates/egress` that build a client without its guard, and why they may.
const UNGUARDED_CLIENTS: [(&str, &str); 7] = [
    ("cli/src/commands/llm/local_servers.rs", "the addresses are the person's own machine"),
    ("cli/src/tokens/provider.rs", "the person chose the address of their identity provider"),
    ("crates/embed/src/openai.rs", "the operator chose the address of the embedding server"),
    ("crates/llm/src/bedrock/credentials.rs", "the operator chose the address of AWS's services"),
    ("crates/llm/src/google.rs", "the operator chose the address of the metadata server"),
    ("services/channel-bridge/src/guard.rs", "the operator chose the platform's address"),
    ("services/gateway/src/oidc/keys.rs", "the operator chose the address of the issuer"),
];

#[test]
fn every_client_for_an_address_that_others_choose_is_guarded() {
    let mut unguarded = Vec::new();
    for parsed in syntax::production() {
        let path = parsed.source.path.display().to_string();
        let product = parsed.source.text.split("#[cfg(test)]").next().unwrap_or_default();
        if product.contains("client_builder(") && !path.starts_with("crates/egress/") {
            unguarded.push(path);
        }
    }
    unguarded.sort();
    let expected: Vec<&str> = UNGUARDED_CLIENTS.iter().map(|(path, _)| *path).collect();
    assert_eq!(unguarded, expected, "use `holdfast_egress::Guard`");
    assert!(UNGUARDED_CLIENTS.iter().all(|(_, reason)| !reason.is_empty()));
}

/// Files with a queue without a bound, and what bounds it instead.
const UNBOUNDED_QUEUES: [(&str, &str); 5] = [
    ("cli/src/tui.rs", "updates of one person's screen, which are drawn at once"),
    ("crates/sandbox-pods/src/sandbox.rs", "signals to one command, which takes them at once"),
    ("services/operator/src/controllers.rs", "one entry for each resource that names a Secret"),
    ("services/scheduler/src/app.rs", "firings of the backlog, which is bounded"),
    ("services/scheduler/src/deliver.rs", "results of firings of the backlog, which is bounded"),
];

#[test]
fn queues_are_bounded() {
    let makes_unbounded = |text: &str| {
        ["unbounded_channel(", "mpsc::unbounded("].iter().any(|call| text.contains(call))
    };
    let mut unbounded = Vec::new();
    for parsed in syntax::production() {
        let product = parsed.source.text.split("#[cfg(test)]").next().unwrap_or_default();
        if makes_unbounded(product) {
            unbounded.push(parsed.source.path.display().to_string());
        }
    }
    unbounded.sort();
    let expected: Vec<&str> = UNBOUNDED_QUEUES.iter().map(|(path, _)| *path).collect();
    assert_eq!(unbounded, expected, "others can fill a queue: use `mpsc::channel`");
    assert!(UNBOUNDED_QUEUES.iter().all(|(_, reason)| !reason.is_empty()));
}

#[test]
fn an_open_port_is_seen_in_all_its_forms() {
    assert!(opens_to_all("let at = SocketAddr::from(([0, 0, 0, 0], 80));"));
    assert!(opens_to_all("bind(\"0.0.0.0:80\")"));
    assert!(opens_to_all("Ipv4Addr::UNSPECIFIED"));
    assert!(!opens_to_all("// not on 0.0.0.0"));
    assert!(!opens_to_all("SocketAddr::from(([127, 0, 0, 1], 80))"));
}

/// Whether a workflow names the commit of an action: a tag can be moved to another program.
fn is_pinned(action: &str) -> bool {
    let commit = action.split_once('@').map_or("", |(_, version)| version);
    let commit = commit.split_whitespace().next().unwrap_or_default();
    commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[test]
fn workflows_run_actions_of_one_commit() {
    let workflows = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows");
    let texts = fs::read_dir(workflows)
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
    let texts: Vec<String> = texts.collect();
    let actions: Vec<&str> = texts
        .iter()
        .flat_map(|text| text.lines())
        .filter_map(|line| line.split("uses:").nth(1))
        .collect();

    assert!(!actions.is_empty());
    let moving: Vec<&&str> = actions.iter().filter(|action| !is_pinned(action)).collect();
    assert!(moving.is_empty(), "these need a commit, with the version as a comment: {moving:#?}");
}
