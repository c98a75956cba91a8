//! Secrets that an installation generates once and keeps, each in a file.
//!
//! With the key-encryption key everything encrypted can be read, and without it nothing can. So it
//! is never generated again while its file exists, even if the file is damaged.
//!
//! Each service is given those that it uses. A calling service has a key of its own, which only the
//! services that it calls know besides.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_kit::config;

use crate::{
    service::{AgentRunner, ChannelBridge, Gateway, Memory, Scheduler, Secrets, Service as _},
    state_dir::{StateDir, write_private},
};

/// Secrets that several services use, and their settings.
const SHARED: [(&str, &str); 2] = [("kek", "secrets.kek"), ("pepper", "secrets.pepper")];

/// Services that use a shared secret.
const USERS: [(&str, &[&str]); 2] = [
    ("kek", &[Gateway::NAME, AgentRunner::NAME, ChannelBridge::NAME, Secrets::NAME]),
    ("pepper", &[Gateway::NAME]),
];

/// Keys with which the callers of a service sign their calls.
struct CallerKeys {
    called: &'static str,
    callers: &'static [&'static str],
    /// Beginning of the names of the keys' files, before the name of the caller.
    prefix: &'static str,
    /// Setting of a caller.
    setting: &'static str,
}

/// Services that are called. The keys for the secrets service are known to no other called service.
const CALLER_KEYS: [CallerKeys; 3] = [
    CallerKeys {
        called: Gateway::NAME,
        callers: &[ChannelBridge::NAME],
        prefix: "mesh",
        setting: "mesh.key",
    },
    CallerKeys {
        called: Memory::NAME,
        callers: &[Gateway::NAME, AgentRunner::NAME],
        prefix: "mesh",
        setting: "mesh.key",
    },
    CallerKeys {
        called: Secrets::NAME,
        callers: &[Gateway::NAME, AgentRunner::NAME, ChannelBridge::NAME],
        prefix: "secrets",
        setting: "mesh.secrets_key",
    },
];

/// File of the key with which runners sign commands to nodes, and of its public key.
const NODE_KEY: &str = "node-key";
const NODE_PUBLIC_KEY: &str = "node-public-key";

/// File of the secret that earlier versions gave to all services. The key of nodes followed from it.
const FORMER_MESH_SECRET: &str = "mesh";

/// Settings of an operator who manages the keys of services: then none is made.
const MESH_SETTINGS: [&str; 6] = [
    "mesh.secret",
    "mesh.key",
    "mesh.caller_keys",
    "mesh.node_key",
    "mesh.node_public_key",
    "mesh.secrets_key",
];

/// Variables that tell where the secrets are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SecretFiles {
    /// All shared secrets, for commands of the operator.
    pub operator: BTreeMap<String, String>,
    /// By the name of the service: the secrets that it uses.
    pub services: BTreeMap<String, BTreeMap<String, String>>,
}

impl SecretFiles {
    fn give(&mut self, service: &str, setting: &str, path: &Path) {
        let of_service = self.services.entry(service.to_owned()).or_default();
        of_service.insert(variable(setting), path.display().to_string());
    }

    /// Takes the key-encryption key from all services but the one that opens secrets for them, also
    /// if the operator's environment has it.
    pub fn give_kek_to_secrets_service_only(&mut self) {
        for service in
            [Gateway::NAME, AgentRunner::NAME, ChannelBridge::NAME, Scheduler::NAME, Memory::NAME]
        {
            let of_service = self.services.entry(service.to_owned()).or_default();
            for setting in ["secrets.kek", "secrets.previous_kek"] {
                // An empty variable counts as unset.
                for name in [config::variable(setting), variable(setting)] {
                    of_service.insert(name, String::new());
                }
            }
        }
    }
}

/// Generates the missing secrets.
///
/// Returns the variables that tell services where they are, except for settings that the operator
/// chose, as `is_set` tells. During a rotation the old secret is in `<name>.previous`.
///
/// # Errors
///
/// If a file cannot be read or written, or is damaged.
pub fn ensure(home: &StateDir, is_set: impl Fn(&str) -> bool) -> anyhow::Result<SecretFiles> {
    let mut files = SecretFiles::default();
    let is_set = |setting: &str| is_set(&config::variable(setting)) || is_set(&variable(setting));
    for (name, setting) in SHARED {
        if is_set(setting) {
            continue;
        }
        let mut settings = vec![(setting.to_owned(), file(home, name)?)];
        let previous = previous(home, name);
        if previous.exists() {
            settings.push((setting.replace('.', ".previous_"), previous));
        }
        let users = USERS.iter().filter(|(secret, _)| *secret == name);
        for (setting, path) in settings {
            files.operator.insert(variable(&setting), path.display().to_string());
            for service in users.clone().flat_map(|(_, services)| *services) {
                files.give(service, &setting, &path);
            }
        }
    }
    if !MESH_SETTINGS.iter().any(|setting| is_set(setting)) {
        ensure_mesh_keys(home, &mut files)?;
    }
    Ok(files)
}

fn ensure_mesh_keys(home: &StateDir, files: &mut SecretFiles) -> anyhow::Result<()> {
    for CallerKeys { called, callers, prefix, setting } in CALLER_KEYS {
        let mut known = Vec::new();
        for caller in callers {
            let name = format!("{prefix}-{caller}");
            let path = file(home, &name)?;
            files.give(caller, setting, &path);
            for path in [path, previous(home, &name)].into_iter().filter(|path| path.exists()) {
                known.push(format!("{caller}={}", read(&path)?));
            }
        }
        let path = home.secrets().join(format!("callers-{called}"));
        write_private(&path, &known.join(","))?;
        files.give(called, "mesh.caller_keys", &path);
    }

    let former = home.secrets().join(FORMER_MESH_SECRET);
    let node_key = home.secrets().join(NODE_KEY);
    if former.exists() && !node_key.exists() {
        // Nodes know the key that followed from it, and refuse another one.
        write_private(&node_key, &read(&former)?)?;
    }
    let node_key = file(home, NODE_KEY)?;
    let other = previous(home, NODE_KEY);
    let other = if other.exists() { read(&other)? } else { String::new() };
    let mesh = config::Mesh {
        node_key: read(&node_key)?.into(),
        previous_node_key: other.into(),
        ..config::Mesh::default()
    };
    let public_key = home.secrets().join(NODE_PUBLIC_KEY);
    write_private(&public_key, &STANDARD.encode(holdfast_grpc::node_public_key(&mesh)?))?;
    files.give(AgentRunner::NAME, "mesh.node_key", &node_key);
    files.give(Gateway::NAME, "mesh.node_public_key", &public_key);
    Ok(())
}

/// Variable with the path of a file that holds a setting.
fn variable(setting: &str) -> String {
    format!("{}_FILE", config::variable(setting))
}

fn previous(home: &StateDir, name: &str) -> PathBuf {
    home.secrets().join(format!("{name}.previous"))
}

fn read(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path)
        .with_context(|| format!("cannot read the secret `{}`", path.display()))?;
    Ok(text.trim().to_owned())
}

fn file(home: &StateDir, name: &str) -> anyhow::Result<PathBuf> {
    let path = home.secrets().join(name);
    if !path.exists() {
        fs::create_dir_all(home.secrets())
            .with_context(|| format!("cannot make `{}`", home.secrets().display()))?;
        write_private(&path, &STANDARD.encode(rand::random::<[u8; 32]>()))?;
        return Ok(path);
    }
    let bytes = STANDARD.decode(read(&path)?).map_or(0, |bytes| bytes.len());
    ensure!(
        bytes == 32,
        "`{}` does not hold 32 bytes in base64: put back what it held; only if nothing in the \
         database is worth keeping, remove `{}` and start anew",
        path.display(),
        home.path().display()
    );
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_dir::Scratch;

    fn names(variables: &BTreeMap<String, String>) -> Vec<&str> {
        variables.keys().map(String::as_str).collect()
    }

    #[test]
    fn secrets_are_made_once_and_differ() {
        let scratch = Scratch::new();
        let read = |variables: &BTreeMap<String, String>| {
            variables.values().map(|path| fs::read_to_string(path).unwrap()).collect::<Vec<_>>()
        };

        let first = ensure(&scratch.0, |_| false).unwrap();
        let secrets = read(&first.operator);
        let again = ensure(&scratch.0, |_| false).unwrap();

        assert_eq!(first, again);
        assert_eq!(
            names(&first.operator),
            ["HOLDFAST_SECRETS__KEK_FILE", "HOLDFAST_SECRETS__PEPPER_FILE"]
        );
        assert_eq!(secrets, read(&again.operator));
        assert_ne!(secrets[0], secrets[1]);
    }

    #[test]
    fn each_service_is_given_its_own_secrets_and_no_others() {
        let scratch = Scratch::new();

        let files = ensure(&scratch.0, |_| false).unwrap();

        let given = |service: &str| names(&files.services[service]);
        assert_eq!(
            given("gateway"),
            [
                "HOLDFAST_MESH__CALLER_KEYS_FILE",
                "HOLDFAST_MESH__KEY_FILE",
                "HOLDFAST_MESH__NODE_PUBLIC_KEY_FILE",
                "HOLDFAST_MESH__SECRETS_KEY_FILE",
                "HOLDFAST_SECRETS__KEK_FILE",
                "HOLDFAST_SECRETS__PEPPER_FILE",
            ]
        );
        assert_eq!(
            given("agent-runner"),
            [
                "HOLDFAST_MESH__KEY_FILE",
                "HOLDFAST_MESH__NODE_KEY_FILE",
                "HOLDFAST_MESH__SECRETS_KEY_FILE",
                "HOLDFAST_SECRETS__KEK_FILE",
            ]
        );
        assert_eq!(
            given("channel-bridge"),
            [
                "HOLDFAST_MESH__KEY_FILE",
                "HOLDFAST_MESH__SECRETS_KEY_FILE",
                "HOLDFAST_SECRETS__KEK_FILE",
            ]
        );
        assert_eq!(given("memory-service"), ["HOLDFAST_MESH__CALLER_KEYS_FILE"]);
        assert_eq!(
            given("secrets-service"),
            ["HOLDFAST_MESH__CALLER_KEYS_FILE", "HOLDFAST_SECRETS__KEK_FILE"]
        );
        assert!(!files.services.contains_key("scheduler"));
        let key = |service: &str| {
            fs::read_to_string(&files.services[service]["HOLDFAST_MESH__KEY_FILE"]).unwrap()
        };
        let (gateway, runner, bridge) =
            (key("gateway"), key("agent-runner"), key("channel-bridge"));
        assert!(gateway != runner && runner != bridge && bridge != gateway);
        let callers = |service: &str| {
            let path = &files.services[service]["HOLDFAST_MESH__CALLER_KEYS_FILE"];
            fs::read_to_string(path).unwrap()
        };
        assert_eq!(callers("gateway"), format!("channel-bridge={bridge}"));
        assert_eq!(callers("memory-service"), format!("gateway={gateway},agent-runner={runner}"));
        // No service that is called by another knows with which key that one opens secrets.
        let of_secrets = callers("secrets-service");
        for (caller, key) in
            [("gateway", gateway), ("agent-runner", runner), ("channel-bridge", bridge)]
        {
            assert!(of_secrets.contains(&format!("{caller}=")) && !of_secrets.contains(&key));
        }
    }

    #[test]
    fn services_of_their_own_processes_have_no_key_encryption_key() {
        let scratch = Scratch::new();
        let mut files = ensure(&scratch.0, |_| false).unwrap();

        files.give_kek_to_secrets_service_only();

        for (service, variables) in &files.services {
            let kek = ["HOLDFAST_SECRETS__KEK", "HOLDFAST_SECRETS__KEK_FILE"]
                .map(|name| variables.get(name).map(String::as_str));
            match service.as_str() {
                "secrets-service" => assert!(kek[1].is_some_and(|path| !path.is_empty())),
                _ => assert_eq!(kek, [Some(""), Some("")], "{service}"),
            }
        }
    }

    #[test]
    fn the_previous_secret_of_a_rotation_is_given_to_the_services() {
        let scratch = Scratch::new();
        ensure(&scratch.0, |_| false).unwrap();
        let secrets = scratch.0.secrets();
        for name in ["kek", "mesh-channel-bridge"] {
            fs::rename(secrets.join(name), secrets.join(format!("{name}.previous"))).unwrap();
        }

        let files = ensure(&scratch.0, |_| false).unwrap();

        let read = |name: &str| fs::read_to_string(&files.operator[name]).unwrap();
        assert_ne!(read("HOLDFAST_SECRETS__KEK_FILE"), read("HOLDFAST_SECRETS__PREVIOUS_KEK_FILE"));
        assert!(
            files.services["channel-bridge"].contains_key("HOLDFAST_SECRETS__PREVIOUS_KEK_FILE")
        );
        let believed = fs::read_to_string(secrets.join("callers-gateway")).unwrap();
        for name in ["mesh-channel-bridge", "mesh-channel-bridge.previous"] {
            let key = fs::read_to_string(secrets.join(name)).unwrap();
            assert!(believed.contains(&format!("channel-bridge={key}")), "{name}");
        }
    }

    #[test]
    fn nodes_of_an_installation_with_one_secret_need_not_learn_another_key() {
        let scratch = Scratch::new();
        fs::create_dir_all(scratch.0.secrets()).unwrap();
        let former = STANDARD.encode([7; 32]);
        write_private(&scratch.0.secrets().join("mesh"), &former).unwrap();
        let mesh = config::Mesh { secret: former.into(), ..config::Mesh::default() };

        let files = ensure(&scratch.0, |_| false).unwrap();

        let told = &files.services["gateway"]["HOLDFAST_MESH__NODE_PUBLIC_KEY_FILE"];
        let known = STANDARD.encode(holdfast_grpc::node_public_key(&mesh).unwrap());
        assert_eq!(fs::read_to_string(told).unwrap(), known);
    }

    #[test]
    fn a_secret_that_the_operator_gives_is_not_made() {
        let scratch = Scratch::new();

        let files = ensure(&scratch.0, |name| {
            name.starts_with("HOLDFAST_SECRETS__KEK") || name == "HOLDFAST_MESH__SECRET"
        });

        let files = files.unwrap();
        assert_eq!(names(&files.operator), ["HOLDFAST_SECRETS__PEPPER_FILE"]);
        assert_eq!(files.services.keys().collect::<Vec<_>>(), ["gateway"]);
        assert!(!scratch.0.secrets().join("kek").exists());
        assert!(!scratch.0.secrets().join("mesh-gateway").exists());
    }

    #[test]
    fn a_damaged_secret_is_never_replaced() {
        let scratch = Scratch::new();
        ensure(&scratch.0, |_| false).unwrap();
        fs::write(scratch.0.secrets().join("kek"), "short").unwrap();

        let error = ensure(&scratch.0, |_| false).unwrap_err().to_string();

        assert!(error.contains("put back what it held"), "{error}");
        assert_eq!(fs::read_to_string(scratch.0.secrets().join("kek")).unwrap(), "short");
    }
}
