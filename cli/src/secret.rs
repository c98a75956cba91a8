//! Secrets that an installation generates once and keeps.
//!
//! With the key-encryption key everything encrypted can be read, and without it nothing can. So it
//! is never generated again while its file exists, even if the file is damaged.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use holdfast_kit::config;

use crate::state_dir::{StateDir, write_private};

/// Name of each secret's file, and its setting.
const SECRETS: [(&str, &str); 3] =
    [("kek", "secrets.kek"), ("pepper", "secrets.pepper"), ("mesh", "mesh.secret")];

/// Generates the missing secrets.
///
/// Returns the variables that tell services where they are, except for settings that the operator
/// chose, as `is_set` tells. During a rotation the old secret is in `<name>.previous`.
///
/// # Errors
///
/// If a file cannot be read or written, or is damaged.
pub fn ensure(
    home: &StateDir,
    is_set: impl Fn(&str) -> bool,
) -> anyhow::Result<Vec<(String, String)>> {
    let mut variables = Vec::new();
    for (name, setting) in SECRETS {
        let variable = config::variable(setting);
        let by_file = format!("{variable}_FILE");
        if is_set(&variable) || is_set(&by_file) {
            continue;
        }
        variables.push((by_file, file(home, name)?.display().to_string()));
        let previous = home.secrets().join(format!("{name}.previous"));
        if previous.exists() {
            let setting = setting.replace('.', ".previous_");
            let by_file = format!("{}_FILE", config::variable(&setting));
            variables.push((by_file, previous.display().to_string()));
        }
    }
    Ok(variables)
}

fn file(home: &StateDir, name: &str) -> anyhow::Result<PathBuf> {
    let path = home.secrets().join(name);
    if !path.exists() {
        fs::create_dir_all(home.secrets())
            .with_context(|| format!("cannot make `{}`", home.secrets().display()))?;
        write_private(&path, &STANDARD.encode(rand::random::<[u8; 32]>()))?;
        return Ok(path);
    }
    let text = fs::read_to_string(&path)
        .with_context(|| format!("cannot read the secret `{}`", path.display()))?;
    let bytes = STANDARD.decode(text.trim()).map_or(0, |bytes| bytes.len());
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

    #[test]
    fn secrets_are_made_once_and_differ() {
        let scratch = Scratch::new();
        let read = |variables: &[(String, String)]| {
            variables.iter().map(|(_, path)| fs::read_to_string(path).unwrap()).collect::<Vec<_>>()
        };

        let first = ensure(&scratch.0, |_| false).unwrap();
        let again = ensure(&scratch.0, |_| false).unwrap();

        assert_eq!(first, again);
        assert_eq!(first[0].0, "HOLDFAST_SECRETS__KEK_FILE");
        let secrets = read(&first);
        assert_eq!(secrets, read(&again));
        assert!(secrets[0] != secrets[1] && secrets[1] != secrets[2]);
    }

    #[test]
    fn the_previous_secret_of_a_rotation_is_given_to_the_services() {
        let scratch = Scratch::new();
        ensure(&scratch.0, |_| false).unwrap();
        let secrets = scratch.0.secrets();
        fs::rename(secrets.join("kek"), secrets.join("kek.previous")).unwrap();

        let variables = ensure(&scratch.0, |_| false).unwrap();

        let names: Vec<&str> = variables.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names[..2],
            ["HOLDFAST_SECRETS__KEK_FILE", "HOLDFAST_SECRETS__PREVIOUS_KEK_FILE"]
        );
        let read = |at: usize| fs::read_to_string(&variables[at].1).unwrap();
        assert_ne!(read(0), read(1));
    }

    #[test]
    fn a_secret_that_the_operator_gives_is_not_made() {
        let scratch = Scratch::new();

        let made = ensure(&scratch.0, |name| name.starts_with("HOLDFAST_SECRETS__KEK")).unwrap();

        assert_eq!(made.len(), 2);
        assert!(!scratch.0.secrets().join("kek").exists());
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
