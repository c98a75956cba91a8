//! Repositories between a Git server and an agent's files. Git runs on this machine, with the
//! credentials of the person who runs the command: the agent gets files, and no way to the server.

use std::{fs, io, path::Path, process::Command};

use super::archive::Files;
use crate::error::Error;

/// Options of a clone that keeps to what an agent's files can be: no links, permissions, hooks or
/// collection of garbage.
const OPTIONS: [&str; 5] = [
    "core.symlinks=false",
    "core.fileMode=false",
    "gc.auto=0",
    "user.name=agent",
    "user.email=agent@holdfast.invalid",
];

/// Clones a repository. Returns its files, with those of its database.
///
/// # Errors
///
/// If the address has a password, or Git fails.
pub fn clone_repository(address: &str, branch: Option<&str>) -> Result<Files, Error> {
    if has_password(address) {
        return Err(Error::Usage(
            "the address has a password, which would be in the agent's files: leave it out, and let \
             Git find it, for example by a credential helper"
                .to_owned(),
        ));
    }
    let folder = tempfile::tempdir()?;
    let repository = folder.path().join("repository");
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--template="]);
    for option in OPTIONS {
        clone.args(["--config", option]);
    }
    if let Some(branch) = branch {
        clone.args(["--branch", branch]);
    }
    run(clone.arg("--").arg(address).arg(&repository))?;
    unpack(&repository)?;
    let database = repository.join(".git");
    // Folders of a tree exist by their files.
    for keep in ["refs/.keep", "objects/info/.keep"] {
        let keep = database.join(keep);
        keep.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(keep, "")?;
    }
    let mut files = Files::new();
    add_files(&mut files, &repository, &repository)?;
    Ok(files)
}

/// Whether an address such as `https://name:password@host/path` has a password.
pub fn has_password(address: &str) -> bool {
    let Some((_, rest)) = address.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
}

/// Stores each object in a file of its own: a pack may be larger than a file of an agent.
fn unpack(repository: &Path) -> Result<(), Error> {
    let packs = repository.join(".git/objects/pack");
    if !packs.exists() {
        return Ok(());
    }
    let moved = repository.join(".git/packs");
    fs::rename(&packs, &moved)?;
    for entry in fs::read_dir(&moved)? {
        let pack = entry?.path();
        if pack.extension().is_some_and(|end| end == "pack") {
            let mut unpack = Command::new("git");
            unpack.arg("-C").arg(repository).args(["unpack-objects", "-q"]);
            run(unpack.stdin(fs::File::open(&pack)?))?;
        }
    }
    Ok(fs::remove_dir_all(&moved)?)
}

/// Runs Git.
///
/// # Errors
///
/// If there is no Git, or it fails.
pub fn run(command: &mut Command) -> Result<(), Error> {
    let done = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Usage("there is no `git` here: install it".to_owned()),
        _ => error.into(),
    })?;
    if done.status.success() {
        return Ok(());
    }
    let told = String::from_utf8_lossy(&done.stderr);
    Err(Error::NoAnswer(format!("git: {}", crate::screen::plain(told.trim()))))
}

fn add_files(files: &mut Files, root: &Path, folder: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            add_files(files, root, &path)?;
        } else if entry.file_type()?.is_file() {
            let name = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
            files.insert(name, fs::read(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_password_is_recognized() {
        for (address, expected) in [
            ("https://anna:secret@example.com/a.git", true),
            ("https://anna:secret@example.com", true),
            ("https://anna@example.com/a.git", false),
            ("https://example.com/a:b@c.git", false),
            ("ssh://git@example.com:22/a.git", false),
            ("git@example.com:a.git", false),
            ("../a", false),
        ] {
            assert_eq!(has_password(address), expected, "{address}");
        }
    }
}
