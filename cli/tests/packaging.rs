//! The image, the compose file and the settings' manual match the binary.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a panic is how a test fails, in its helpers too"
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::Command,
};

use serde_json::Value;

const HOLDFAST: &str = env!("CARGO_BIN_EXE_holdfast");
const SERVICES: [&str; 6] =
    ["gateway", "agent-runner", "channel-bridge", "scheduler", "memory-service", "secrets-service"];
/// Logins in the database of all but the last, after `holdfast_`. The secrets service has none.
const LOGINS: [&str; 5] = ["gateway", "runner", "bridge", "scheduler", "memory"];
/// Columns of the tables in `docs/stolen-parts.md`.
const COLUMNS: [&str; 6] =
    ["gateway", "agent-runner", "scheduler", "memory-service", "channel-bridge", "secrets-service"];

fn root() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Effective settings of a service with these variables and no others.
fn settings(service: &str, vars: &BTreeMap<String, String>) -> Value {
    let output = Command::new(HOLDFAST)
        .args([service, "--print-config"])
        .env_clear()
        .envs(vars)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "`{service}` does not take {vars:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Passwords that the compose file asks for: for each name, `HOLDFAST_<NAME>_PASSWORD`.
const PASSWORDS: [&str; 13] = [
    "admin",
    "setup",
    "gateway",
    "runner",
    "scheduler",
    "memory",
    "bridge",
    "nats",
    "redis",
    "bus_gateway",
    "bus_runner",
    "bus_scheduler",
    "bus_bridge",
];

/// The compose file with `pass-<name>` for the passwords that it asks for.
fn compose() -> Value {
    let text = PASSWORDS.iter().fold(read("docker-compose.yml"), |text, name| {
        let variable = format!("${{HOLDFAST_{}_PASSWORD", name.to_uppercase());
        with_value(&text, &variable, &format!("pass-{name}"))
    });
    serde_saphyr::from_str(&text).unwrap()
}

fn with_value(text: &str, variable: &str, value: &str) -> String {
    let mut parts = text.split(variable);
    let mut given = parts.next().unwrap().to_owned();
    for part in parts {
        let (_, rest) = part.split_once('}').unwrap();
        given.push_str(value);
        given.push_str(rest);
    }
    given
}

/// Files of the volume `holdfast` that a service sees; `*` for all.
fn visible_files(service: &Value) -> Vec<String> {
    let mounts = service["volumes"].as_array().cloned().unwrap_or_default();
    let of = |mount: &Value| match mount.as_str() {
        Some(mount) => mount.starts_with("holdfast:").then(|| "*".to_owned()),
        None => Some(mount["volume"]["subpath"].as_str().unwrap_or("*").to_owned()),
    };
    mounts.iter().filter_map(of).collect()
}

fn texts(value: &Value) -> Vec<String> {
    let values = value.as_array().cloned().unwrap_or_default();
    values.iter().map(|text| text.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn compose_names_only_what_it_has() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();

    for service in SERVICES {
        assert_eq!(texts(&services[service]["command"]), [service]);
    }
    for (name, service) in services {
        let waits_for = service["depends_on"].as_object().into_iter().flatten();
        for (other, _) in waits_for {
            assert!(services.contains_key(other), "{name} waits for {other}, which is not there");
        }
        for mount in texts(&service["volumes"]).into_iter().filter(|mount| !mount.is_empty()) {
            let source = mount.split(':').next().unwrap_or_default();
            let is_there = compose["volumes"].get(source).is_some()
                || (source.starts_with("./") && root().join(source).exists());
            assert!(is_there, "{name} mounts {source}, which is not there");
        }
        let image = service["image"].as_str().unwrap_or_default();
        let tag = image.rsplit_once(':').map(|(_, tag)| tag).unwrap_or_default();
        assert!(!matches!(tag, "" | "latest"), "{name}: `{image}` is not pinned");
    }
}

#[test]
fn no_backend_of_compose_serves_without_the_password() {
    let compose = compose();
    let command = |name: &str| texts(&compose["services"][name]["command"]).join(" ");
    let postgres = compose["services"]["postgres"]["environment"].as_object().unwrap();

    assert_eq!(postgres["POSTGRES_PASSWORD"], "pass-admin");
    assert!(!postgres.contains_key("POSTGRES_HOST_AUTH_METHOD"));
    assert!(command("nats").ends_with("--config /etc/holdfast/nats-users.conf"));
    assert!(command("redis").starts_with("sh /etc/holdfast/redis.sh "));
    for backend in ["nats", "redis"] {
        let users = read(&format!("helm/holdfast/files/{backend}-users.conf"));
        let environment = compose["services"][backend]["environment"].to_string();
        for name in PASSWORDS[9..].iter().copied().chain([backend]) {
            let variable = format!("HOLDFAST_{}_PASSWORD", name.to_uppercase());
            assert!(users.contains(&format!("${variable}")), "{backend}: {variable}");
            assert!(environment.contains(&format!("pass-{name}")), "{backend}: {variable}");
        }
    }
    let logins = read("deploy/compose/postgres.sh");
    for (service, login) in SERVICES.into_iter().zip(LOGINS) {
        let given = compose["services"][service]["environment"].as_object().unwrap();
        let database = format!("postgres://holdfast_{login}:pass-{login}@postgres/holdfast");
        assert_eq!(given["HOLDFAST_DATABASE__URL"], database.as_str(), "{service}");
        assert!(
            logins.contains(&format!("create role holdfast_{login} login password :'{login}'"))
        );
        let variable = format!("HOLDFAST_{}_PASSWORD", login.to_uppercase());
        assert_eq!(postgres[&variable], format!("pass-{login}").as_str());
        // The memory service needs the database only.
        let bus = given.get("HOLDFAST_NATS__URL").zip(given.get("HOLDFAST_REDIS__URL"));
        assert_eq!(bus.is_some(), service != "memory-service");
        if let Some((nats, redis)) = bus {
            let user = format!("holdfast_{login}:pass-bus_{login}");
            assert_eq!(nats, format!("nats://{user}@nats:4222").as_str());
            assert_eq!(redis, format!("redis://{user}@redis:6379").as_str());
        }
    }
}

#[test]
fn no_container_of_compose_knows_the_password_of_another_service() {
    let compose = compose();
    for (name, container) in compose["services"].as_object().unwrap() {
        let text = container.to_string();
        let known: Vec<&str> = PASSWORDS
            .into_iter()
            .filter(|password| text.contains(&format!("pass-{password}")))
            .collect();

        let expected: &[&str] = match name.as_str() {
            "postgres" => &PASSWORDS[..7],
            "setup" => &["admin", "setup"],
            "gateway" => &["gateway", "bus_gateway"],
            "agent-runner" => &["runner", "bus_runner"],
            "scheduler" => &["scheduler", "bus_scheduler"],
            "channel-bridge" => &["bridge", "bus_bridge"],
            "memory-service" => &["memory"],
            "nats" => &["nats", "bus_gateway", "bus_runner", "bus_scheduler", "bus_bridge"],
            "redis" => &["redis", "bus_gateway", "bus_runner", "bus_scheduler", "bus_bridge"],
            _ => &[],
        };
        assert_eq!(known, expected, "{name}");
    }
}

#[test]
fn a_service_of_compose_sees_the_secrets_that_it_uses_and_no_others() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();

    for (service, secrets) in [
        (
            "gateway",
            &[
                "secrets/pepper",
                "secrets/mesh-gateway",
                "secrets/callers-gateway",
                "secrets/secrets-gateway",
                "secrets/node-public-key",
            ][..],
        ),
        (
            "agent-runner",
            &["secrets/mesh-agent-runner", "secrets/secrets-agent-runner", "secrets/node-key"],
        ),
        ("channel-bridge", &["secrets/mesh-channel-bridge", "secrets/secrets-channel-bridge"]),
        ("scheduler", &[]),
        ("memory-service", &["secrets/callers-memory-service"]),
        ("secrets-service", &["secrets/kek", "secrets/callers-secrets-service"]),
        ("cli", &["dev.key"]),
        ("postgres", &[]),
        ("nats", &[]),
        ("redis", &[]),
    ] {
        assert_eq!(visible_files(&services[service]), secrets, "{service}");
        let environment = services[service]["environment"].as_object().into_iter().flatten();
        let read: BTreeSet<String> = environment
            .filter(|(name, _)| name.ends_with("_FILE"))
            .map(|(_, path)| path.as_str().unwrap().replace("/run/holdfast/", "secrets/"))
            .collect();
        let mounted: BTreeSet<String> = secrets
            .iter()
            .filter(|name| name.starts_with("secrets/"))
            .map(|name| (*name).to_owned())
            .collect();
        assert_eq!(read, mounted, "{service} mounts what it does not read");
    }
    for (name, service) in services {
        assert_eq!(texts(&service["cap_drop"]), ["ALL"], "{name}");
        let is_backend = matches!(name.as_str(), "postgres" | "nats" | "redis");
        assert_eq!(
            texts(&service["networks"]).contains(&"mesh".to_owned()),
            !is_backend && { !matches!(name.as_str(), "setup" | "scheduler" | "secrets-service") }
        );
        assert_eq!(
            texts(&service["networks"]).contains(&"secrets".to_owned()),
            matches!(
                name.as_str(),
                "gateway" | "agent-runner" | "channel-bridge" | "secrets-service"
            ),
            "{name}"
        );
        assert!(service["mem_limit"].is_string() && service["pids_limit"].is_number(), "{name}");
    }
    for internal in ["database", "bus", "secrets"] {
        assert_eq!(compose["networks"][internal]["internal"], true, "{internal}");
    }
}

#[test]
fn the_page_says_which_keys_logins_and_networks_each_service_has() {
    let compose = compose();
    let environments = COLUMNS.map(|service| {
        compose["services"][service]["environment"].as_object().cloned().unwrap_or_default()
    });
    let secrets: BTreeSet<&str> = environments
        .iter()
        .flat_map(|variables| variables.keys().filter_map(|name| name.strip_suffix("_FILE")))
        .collect();
    let row = |name: String, cell: &dyn Fn(usize) -> Option<String>| -> Vec<String> {
        let cells = (0..COLUMNS.len()).map(|column| cell(column).unwrap_or_else(|| "—".to_owned()));
        [name].into_iter().chain(cells).collect()
    };

    let mut rows: Vec<Vec<String>> = Vec::new();
    for secret in secrets {
        let setting = secret.trim_start_matches("HOLDFAST_").to_lowercase().replace("__", ".");
        let file = format!("{secret}_FILE");
        let has =
            |column: usize| environments[column].contains_key(&file).then(|| "has".to_owned());
        rows.push(row(format!("`{setting}`"), &has));
    }
    for (backend, variable) in [
        ("Postgres", "HOLDFAST_DATABASE__URL"),
        ("NATS", "HOLDFAST_NATS__URL"),
        ("Redis", "HOLDFAST_REDIS__URL"),
    ] {
        let user = |column: usize| {
            let (_, login) = environments[column].get(variable)?.as_str()?.split_once("://")?;
            Some(format!("`{}`", login.split(':').next()?))
        };
        rows.push(row(format!("login to {backend}"), &user));
    }
    let networks = |column: usize| {
        let names = texts(&compose["services"][COLUMNS[column]]["networks"]);
        let named = names.iter().map(|name| match compose["networks"][name]["internal"] == true {
            true => name.clone(),
            false => format!("{name} and the internet"),
        });
        Some(named.collect::<Vec<_>>().join(", "))
    };
    rows.push(row("networks".to_owned(), &networks));

    let head: Vec<&str> = ["of"].into_iter().chain(COLUMNS).collect();
    holdfast_testkit::generated::check_stolen_parts("keys", &head, &rows).unwrap();
}

/// Name of a destination of a network policy's rule.
fn destination(rule: &Value, to: &Value) -> String {
    let label = |selector: &str, name: &str| to[selector]["matchLabels"][name].as_str();
    let pods = label("podSelector", "app.kubernetes.io/component");
    let named = pods.or_else(|| label("namespaceSelector", "kubernetes.io/metadata.name"));
    let addresses = if rule["ports"].is_null() { "the internet" } else { "the API of Kubernetes" };
    named.unwrap_or(addresses).to_owned()
}

#[test]
fn the_page_says_what_the_policies_of_the_chart_let_each_service_reach() {
    let text = read("tests/helm/golden/production-networkpolicies.yaml");
    let mut callers: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for document in text.split("\n---\n") {
        let policy: Value = serde_saphyr::from_str(document).unwrap();
        let caller = policy["metadata"]["labels"]["app.kubernetes.io/component"].as_str().unwrap();
        for rule in policy["spec"]["egress"].as_array().into_iter().flatten() {
            for to in rule["to"].as_array().into_iter().flatten() {
                callers.entry(destination(rule, to)).or_default().insert(caller.to_owned());
            }
        }
    }

    let rows = callers.iter().filter_map(|(to, callers)| {
        let cells = COLUMNS.map(|service| if callers.contains(service) { "reaches" } else { "—" });
        let is_named = cells.contains(&"reaches");
        is_named.then(|| [to.as_str()].into_iter().chain(cells).map(str::to_owned).collect())
    });
    let rows: Vec<Vec<String>> = rows.collect();
    assert!(rows.len() > 4, "{rows:?}");
    let head: Vec<&str> = ["to"].into_iter().chain(COLUMNS).collect();
    holdfast_testkit::generated::check_stolen_parts("network", &head, &rows).unwrap();
}

#[test]
fn compose_publishes_on_loopback_only() {
    for (name, service) in compose()["services"].as_object().unwrap() {
        for port in texts(&service["ports"]) {
            assert!(port.starts_with("127.0.0.1:"), "{name} publishes {port} to everybody");
        }
    }
}

#[test]
fn every_service_takes_the_settings_that_compose_gives_it() {
    let compose = compose();
    for service in SERVICES {
        let given = compose["services"][service]["environment"].as_object().unwrap();
        let vars: BTreeMap<String, String> = given
            .iter()
            // The files are created on the other machine; only their purpose matters here.
            .map(|(name, value)| match name.strip_suffix("_FILE") {
                Some(name) => (name.to_owned(), "given".to_owned()),
                None => (name.clone(), value.as_str().unwrap().to_owned()),
            })
            .collect();

        let settings = settings(service, &vars);

        for (name, setting) in [
            ("HOLDFAST_SECRETS__KEK_FILE", &settings["secrets"]["kek"]),
            ("HOLDFAST_SECRETS__PEPPER_FILE", &settings["secrets"]["pepper"]),
            ("HOLDFAST_MESH__KEY_FILE", &settings["mesh"]["key"]),
            ("HOLDFAST_MESH__CALLER_KEYS_FILE", &settings["mesh"]["caller_keys"]),
            ("HOLDFAST_MESH__NODE_KEY_FILE", &settings["mesh"]["node_key"]),
            ("HOLDFAST_MESH__SECRETS_KEY_FILE", &settings["mesh"]["secrets_key"]),
        ] {
            assert_eq!(*setting == "********", given.contains_key(name), "{service}: {name}");
        }
    }
}

#[test]
fn the_image_runs_as_nobody_in_particular_and_copies_what_is_there() {
    let dockerfile = read("deploy/Dockerfile").replace("\\\n", " ");
    let lines: Vec<(&str, &str)> = dockerfile
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    let of = |word: &str| {
        let named = lines.iter().filter(|(name, _)| *name == word);
        named.map(|(_, rest)| rest.trim().to_owned()).collect::<Vec<_>>()
    };

    let known = [
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "USER",
        "ENV",
        "EXPOSE",
        "ENTRYPOINT",
        "CMD",
        "ARG",
        "LABEL",
    ];
    for (word, _) in &lines {
        assert!(known.contains(word), "`{word}` is no instruction that we use");
    }
    let stages = of("FROM");
    assert_eq!(
        stages,
        ["$NODE AS console", "$RUST AS build", "scratch AS services", "$DEBIAN AS holdfast"]
    );
    for base in of("ARG") {
        let (_, image) = base.split_once('=').unwrap();
        assert!(image.contains(':') && !image.contains(":latest"), "{base}");
    }
    // Each image ends as a user of its own.
    let starts = lines.iter().enumerate().filter(|(_, (word, _))| *word == "FROM").skip(2);
    for (start, (_, stage)) in starts {
        let user = lines[start..].iter().find(|(word, _)| *word == "USER").map(|(_, user)| *user);
        let uid: u32 = user.unwrap().split(':').next().unwrap().parse().unwrap();
        assert_ne!(uid, 0, "{stage}");
    }
    for entry in of("ENTRYPOINT") {
        assert_eq!(serde_json::from_str::<Vec<String>>(&entry).unwrap(), ["holdfast"]);
    }
    for copy in of("COPY").iter().filter(|copy| !copy.starts_with("--from=")) {
        for source in copy.split_whitespace().rev().skip(1) {
            assert!(root().join(source).exists(), "`COPY {copy}`: there is no {source}");
        }
    }
}

/// Programs of a release that write down what they are told: a docker that knows one digest and builds
/// another, a helm that packages an empty chart, and a cosign that signs with nothing.
const PROGRAMS: [(&str, &str); 3] = [
    (
        "docker",
        r#"case $* in *imagetools*) printf 'sha256:%064d\n' 1 ;; esac
while [ $# -gt 0 ]; do
    case $1 in
        --metadata-file) printf '{\n  "containerimage.digest": "sha256:%064d"\n}\n' 2 >"$2" ;;
        --output)
            cat >"${0%/*}/binaries"
            for platform in linux_amd64 linux_arm64; do
                mkdir -p "${2#*dest=}/$platform" && echo binary >"${2#*dest=}/$platform/holdfast"
            done ;;
    esac
    shift
done"#,
    ),
    (
        "helm",
        r#"case $1 in
    package) : >"$4/holdfast-1.2.3.tgz" ;;
    push) printf 'Pushed: it\nDigest: sha256:%064d\n' 3 >&2 ;;
esac"#,
    ),
    ("cosign", r#"while [ $# -gt 0 ]; do [ "$1" != --bundle ] || : >"$2"; shift; done"#),
];

/// Folder with the files of a release, whose programs write down what they are told.
struct ReleaseFolder(tempfile::TempDir);

impl ReleaseFolder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for (name, script) in PROGRAMS {
            let program = folder.path().join("bin").join(name);
            let script = format!("#!/bin/sh\necho \"{name} $*\" >>\"${{0%/*}}/log\"\n{script}\n");
            fs::write(&program, script).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let copied = ["deploy", "docker-compose.yml", "helm/holdfast/values.yaml", ".github"];
        let copy = Command::new("cp")
            .args(["--recursive", "--parents"])
            .args(copied)
            .arg(folder.path())
            .current_dir(root())
            .status()
            .unwrap();
        assert!(copy.success());
        fs::create_dir(folder.path().join(".holdfast")).unwrap();
        fs::write(folder.path().join(".holdfast/holdfast.cdx.json"), "{}").unwrap();
        Self(folder)
    }

    /// Runs a program of the folder; its errors if it fails.
    fn run(&self, program: &str, args: &[&str]) -> Result<(), String> {
        let bin = self.0.path().join("bin");
        let output = Command::new(self.0.path().join(program))
            .args(args)
            .env("PATH", format!("{}:{}", bin.display(), env::var("PATH").unwrap()))
            .envs([
                ("GITHUB_SERVER_URL", "https://github.com"),
                ("GITHUB_REPOSITORY", "example/holdfast"),
                ("GITHUB_WORKFLOW_REF", "example/holdfast/release.yml@refs/tags/v1.2.3"),
                ("GITHUB_REF", "refs/tags/v1.2.3"),
                ("GITHUB_SHA", "0123abc"),
                ("GITHUB_RUN_ID", "7"),
                ("GITHUB_RUN_ATTEMPT", "1"),
            ])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(errors) }
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    /// Replaces a text of a file.
    fn change(&self, path: &str, from: &str, to: &str) {
        let before = self.read(path);
        assert!(before.contains(from), "{path}: {from}");
        fs::write(self.0.path().join(path), before.replace(from, to)).unwrap();
    }
}

fn digest(number: u8) -> String {
    format!("sha256:{number:064}")
}

#[test]
fn images_are_built_for_two_architectures_from_pinned_bases() {
    let folder = ReleaseFolder::new();

    folder.run("deploy/images.sh", &["registry.test/holdfast", "1.2.3"]).unwrap();

    let log = folder.read("bin/log");
    let builds: Vec<&str> = log.lines().filter(|line| line.contains("buildx build ")).collect();
    assert_eq!(builds.len(), 2, "{log}");
    for (build, target) in builds.iter().zip(["services", "holdfast"]) {
        for part in [
            format!("--target {target} "),
            "--platform linux/amd64,linux/arm64 ".to_owned(),
            format!("--build-arg RUST=rust:1.95-bookworm@{} ", digest(1)),
            format!("--build-arg DEBIAN=debian:bookworm-slim@{} ", digest(1)),
            format!("--build-arg NODE=node:24-bookworm-slim@{} ", digest(1)),
            "--sbom=true".to_owned(),
            "--provenance=mode=max".to_owned(),
        ] {
            assert!(build.contains(&part), "{part}: {build}");
        }
    }
    assert!(builds[0].contains("--tag registry.test/holdfast-services:1.2.3 "), "{log}");
    assert!(builds[1].contains("--tag registry.test/holdfast:1.2.3 "), "{log}");
    let images = folder.read(".holdfast/images");
    let expected = ["registry.test/holdfast-services", "registry.test/holdfast"];
    assert_eq!(
        images.lines().collect::<Vec<_>>(),
        expected.map(|name| format!("{name}@{}", digest(2)))
    );
}

#[test]
fn a_release_names_its_images_by_digest_and_signs_all_that_it_has() {
    let folder = ReleaseFolder::new();
    folder.run("deploy/pin_images.py", &["write", "--missing"]).unwrap();
    folder.run("deploy/images.sh", &["registry.test/team/holdfast", "1.2.3"]).unwrap();

    folder.run("deploy/release.sh", &["registry.test/team/holdfast", "1.2.3"]).unwrap();

    let values: Value = serde_saphyr::from_str(&folder.read("helm/holdfast/values.yaml")).unwrap();
    let (image, services) = (&values["image"], format!("holdfast-services@{}", digest(2)));
    assert_eq!(image["repository"], "registry.test/team/holdfast");
    assert_eq!(image["digest"], digest(2).as_str());
    assert_eq!(image["services"], format!("registry.test/team/{services}").as_str());
    for backend in ["postgres", "nats", "redis"] {
        let name = values["backends"][backend]["image"].as_str().unwrap();
        assert!(name.ends_with(&format!("@{}", digest(1))), "{name}");
    }
    let log = folder.read("bin/log");
    let calls = |verb: &str| log.matches(&format!("cosign {verb} ")).count();
    assert_eq!(["sign", "attest", "sign-blob", "attest-blob"].map(calls), [3, 2, 1, 1], "{log}");
    let verbs = ["verify", "verify-attestation", "verify-blob", "verify-blob-attestation"];
    assert_eq!(verbs.map(calls), [3, 2, 1, 1], "{log}");
    let identity = "--certificate-identity https://github.com/example/holdfast/release.yml@refs/tags/v1.2.3 \
                    --certificate-oidc-issuer https://token.actions.githubusercontent.com";
    assert_eq!(log.matches(identity).count(), 7, "{log}");
    for signed in [
        format!("registry.test/team/{services}"),
        format!("registry.test/team/holdfast@{}", digest(2)),
        format!("registry.test/team/charts/holdfast@{}", digest(3)),
    ] {
        assert!(log.contains(&format!("cosign sign --yes {signed}\n")), "{signed}: {log}");
    }
    let binaries = format!("COPY --from=registry.test/team/holdfast@{} ", digest(2));
    assert!(folder.read("bin/binaries").contains(&binaries));
    let sums = folder.read(".holdfast/release/SHA256SUMS");
    for name in [
        "holdfast-1.2.3-linux-amd64",
        "holdfast-1.2.3-linux-arm64",
        "holdfast-1.2.3.cdx.json",
        "holdfast-1.2.3.tgz",
        "images-1.2.3.txt",
    ] {
        assert!(sums.contains(&format!("  {name}\n")), "{name}: {sums}");
    }
    let record = folder.read(".holdfast/provenance.json");
    let record: Value = serde_json::from_str(&record).unwrap();
    let source = &record["buildDefinition"]["resolvedDependencies"][0];
    assert_eq!(source["digest"]["gitCommit"], "0123abc");
}

#[test]
fn an_image_without_a_digest_or_in_another_version_is_found() {
    let folder = ReleaseFolder::new();
    let check = |args: &[&str]| folder.run("deploy/pin_images.py", &[&["check"], args].concat());
    let refusal = |args: &[&str]| check(args).unwrap_err();
    check(&[]).unwrap();
    folder.run("deploy/pin_images.py", &["write"]).unwrap();
    check(&["--released"]).unwrap();

    folder.change("docker-compose.yml", &format!("nats:2.14@{}", digest(1)), "nats:2.14");
    assert!(refusal(&["--released"]).contains("`nats:2.14` has no digest"));
    assert!(refusal(&[]).contains("name the same version and digest"));
    folder.run("deploy/pin_images.py", &["write", "--missing"]).unwrap();
    check(&["--released"]).unwrap();
    folder.change("docker-compose.yml", "    image: nats:2.14", "    image:  nats:2.14");
    assert!(refusal(&[]).contains("is in no place that"));
}

#[test]
fn workflows_call_what_there_is_to_make() {
    let makefile = read("Makefile");
    let mut called = 0;
    for name in ["check.yml", "release.yml"] {
        let workflow = read(&format!(".github/workflows/{name}"));
        assert!(workflow.contains("permissions:"), "{name} may do everything");
        let lines = workflow.lines().filter(|line| !line.starts_with('#'));
        for (_, call) in lines.filter_map(|line| line.split_once("make ")) {
            let target = call.split_whitespace().next().unwrap();
            assert!(makefile.contains(&format!("\n{target}:")), "{name}: make {target}");
            called += 1;
        }
    }
    assert!(called > 2);
}

#[test]
fn the_manual_names_every_setting() {
    fn leaves(prefix: &str, value: &Value, names: &mut Vec<String>) {
        match value.as_object() {
            Some(table) => {
                for (name, value) in table {
                    leaves(&format!("{prefix}.{name}"), value, names);
                }
            }
            None => names.push(prefix.trim_start_matches('.').to_owned()),
        }
    }
    let manual = read("docs/configuration.md");
    let mut missing = Vec::new();
    for service in SERVICES {
        let mut names = Vec::new();
        leaves("", &settings(service, &BTreeMap::new()), &mut names);
        assert!(names.len() > 20, "{service}: {names:?}");
        missing.extend(names.into_iter().filter(|name| !manual.contains(&format!("| `{name}` |"))));
    }
    missing.sort();
    missing.dedup();
    assert!(missing.is_empty(), "docs/configuration.md lacks {missing:#?}");
}

/// README.md and the files of docs/, with their texts.
fn documents() -> Vec<(String, String)> {
    let mut names = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/decisions"] {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.into_iter().map(|name| (name.clone(), read(&name))).collect()
}

/// Anchors that a document's headings have.
fn anchors(text: &str) -> Vec<String> {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn the_readme_has_the_two_commands_and_no_document_has_a_dead_link() {
    let documents = documents();
    let (_, readme) = &documents[0];
    assert!(readme.contains("make up") && readme.contains("make test"));

    let mut dead = Vec::new();
    // The table of contents has pages that `make docs` writes, and checks.
    let is_checked = |(name, _): &&(String, String)| name != "docs/SUMMARY.md";
    for (name, text) in documents.iter().filter(is_checked) {
        let folder = root().join(name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(name) } else { folder.join(path) };
            let has_anchor = || {
                let text = fs::read_to_string(&target).unwrap_or_default();
                anchor.is_empty() || anchors(&text).iter().any(|found| found == anchor)
            };
            if !target.exists() || !has_anchor() {
                dead.push(format!("{name}: {link}"));
            }
        }
    }
    assert!(dead.is_empty(), "{dead:#?}");
}

/// Names of all files below a folder, without those of builds.
fn file_names(folder: &std::path::Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().to_string_lossy().into_owned();
        match entry.file_type().unwrap().is_dir() {
            true if name.starts_with('.') || name == "target" => {}
            true => file_names(&entry.path(), names),
            false => {
                names.insert(name);
            }
        }
    }
}

#[test]
fn files_and_functions_that_documents_name_exist() {
    const FOLDERS: [&str; 8] =
        ["cli", "crates", "deploy", "docs", "migrations", "proto", "services", "tests"];
    let mut names = BTreeSet::new();
    file_names(&root(), &mut names);

    let mut missing = Vec::new();
    for (document, text) in documents() {
        let mut last = None;
        let parts: Vec<&str> = text.split('`').collect();
        for (index, part) in parts.iter().enumerate().skip(1).step_by(2) {
            let before = parts[index - 1];
            let is_path = part.split_once('/').is_some_and(|(folder, rest)| {
                FOLDERS.contains(&folder) && !rest.contains([' ', '*', '<', '…'])
            });
            let is_source = part.ends_with(".rs") && !part.contains(['/', ' ', '*', '<']);
            if is_path && !root().join(part).exists() || is_source && !names.contains(*part) {
                missing.push(format!("{document}: {part}"));
            }
            // A function is named as in: `path` (`function`).
            let is_function = part.chars().all(|c| c.is_ascii_lowercase() || "_:".contains(c));
            if let Some(path) = last.filter(|_| before == " (" && is_function) {
                let name = part.rsplit(':').next().unwrap_or_default();
                let source = fs::read_to_string(root().join(path)).unwrap_or_default();
                if !source.contains(&format!("fn {name}")) {
                    missing.push(format!("{document}: {path} has no {part}"));
                }
            }
            last = Some(*part).filter(|_| is_path && part.ends_with(".rs"));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
