//! Paths in a script, as far as its text shows them.

use std::path::Path;

use super::ScriptRefusal;

/// Paths that a script may name besides its workspace: private to the sandbox, or the same for
/// everyone.
const PERMITTED_PATHS: [&str; 14] = [
    "/bin",
    "/dev/fd",
    "/dev/full",
    "/dev/null",
    "/dev/random",
    "/dev/stderr",
    "/dev/stdin",
    "/dev/stdout",
    "/dev/urandom",
    "/dev/zero",
    "/sbin",
    "/tmp",
    "/usr",
    "/var/tmp",
];

/// Whether a character ends a word, or a part of a word that may be a path.
const fn is_boundary(character: char) -> bool {
    matches!(
        character,
        '"' | '\'' | '`' | '=' | ';' | '|' | '&' | '<' | '>' | '(' | ')' | '{' | '}' | ','
    ) || character.is_whitespace()
}

/// Checks that no path leads out of the workspace.
///
/// # Errors
///
/// The first path that does.
pub(super) fn check(script: &str, workspace: &Path) -> Result<(), ScriptRefusal> {
    for word in script.split(is_boundary) {
        match word.split_once("://") {
            Some(("file", path)) => check_path(path, workspace)?,
            // Paths of other URLs belong to their servers.
            Some(_) => {}
            // Lists of paths are separated by colons.
            None => word.split(':').try_for_each(|path| check_path(path, workspace))?,
        }
    }
    Ok(())
}

fn check_path(text: &str, workspace: &Path) -> Result<(), ScriptRefusal> {
    if text.split('/').any(|name| name == "..") {
        return Err(ScriptRefusal::Traversal);
    }
    // An option's letter may stand right before its path: `-I/opt/include`.
    let path = match text.strip_prefix('-') {
        Some(option) => option.trim_start_matches(|c: char| c.is_ascii_alphanumeric()),
        None => text,
    };
    let is_common = |path: &Path| PERMITTED_PATHS.iter().any(|common| path.starts_with(common));
    match Path::new(path) {
        path if !path.has_root() || path.starts_with(workspace) || is_common(path) => Ok(()),
        _ => Err(ScriptRefusal::Outside),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(script: &str) -> Result<(), ScriptRefusal> {
        check(script, Path::new("/workspace"))
    }

    #[test]
    fn a_path_outside_is_seen_wherever_it_stands() {
        for script in [
            "cat /etc/passwd",
            "cat '/etc/passwd'",
            "cat</etc/passwd",
            "ls;cat /root/.ssh/id",
            "tar --file=/etc/x",
            "PATH=/usr/bin:/root/bin ls",
            "gcc -I/opt/x a.c",
            "ls /",
            "cat /proc/1/environ",
            "cat /workspacex/a",
            "cat /usr/bin/x /home/me",
            "curl file:///etc/passwd",
        ] {
            assert_eq!(verdict(script), Err(ScriptRefusal::Outside), "{script}");
        }
    }

    #[test]
    fn going_up_is_seen() {
        for script in [
            "cat ../x",
            "cd ..",
            "cat a/../../b",
            "ls \"..\"",
            "X=../y make",
            "cat /workspace/../x",
        ] {
            assert_eq!(verdict(script), Err(ScriptRefusal::Traversal), "{script}");
        }
    }

    #[test]
    fn what_stays_inside_passes() {
        for script in [
            "cat a/b.txt",
            "cat /workspace/a",
            "ls > /dev/null",
            "/usr/bin/env ls",
            "cp a /tmp/b",
            "curl https://example.org/a/b",
            "git log a..b",
            "echo ...",
            "sed s/a/b/ x",
            "date +%d/%m/%Y",
        ] {
            assert_eq!(verdict(script), Ok(()), "{script}");
        }
    }
}
