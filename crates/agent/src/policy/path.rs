//! Workspace paths and the scopes that cover them.
//!
//! Only names are compared. Whether a link leads outside is checked where the file is opened.

use super::glob;

/// Normalises a workspace path: relative, without `.` and empty parts.
///
/// `None` if the path is absolute, contains `..`, or could be read as another path.
pub(crate) fn normalised(path: &str) -> Option<String> {
    let is_odd = |c: char| c.is_control() || c == '\\';
    if path.starts_with(['/', '~']) || path.contains(is_odd) {
        return None;
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// Whether a scope covers a path: it matches the path or a folder above it.
///
/// `*` and `?` match within a part, `**` any number of parts; an empty scope covers everything.
pub(crate) fn covers(scope: &str, path: &str) -> bool {
    let scope: Vec<&str> = scope.split('/').filter(|part| !part.is_empty()).collect();
    let path: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    (0..=path.len()).any(|end| fits(&scope, &path[..end]))
}

/// Whether parts match a pattern; `**` is any run of parts. The algorithm is that of `glob`.
fn fits(scope: &[&str], path: &[&str]) -> bool {
    let (mut at, mut part) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match (scope.get(at), path.get(part)) {
            (None, None) => return true,
            (Some(&"**"), _) => {
                at += 1;
                retry = Some((at, part));
                continue;
            }
            (Some(wanted), Some(found)) if glob::matches(wanted, found) => {
                at += 1;
                part += 1;
                continue;
            }
            (None | Some(_), _) => {}
        }
        match retry {
            Some((after, from)) if from < path.len() => {
                at = after;
                part = from + 1;
                retry = Some((after, from + 1));
            }
            Some(_) | None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_that_leaves_the_workspace_has_no_form() {
        for (path, form) in [
            ("notes/a.md", Some("notes/a.md")),
            ("./notes//a.md", Some("notes/a.md")),
            ("", Some("")),
            ("日记/今天.md", Some("日记/今天.md")),
            ("..", None),
            ("notes/../../x", None),
            ("notes/..", None),
            ("/etc/passwd", None),
            ("~/x", None),
            ("a\\..\\b", None),
            ("a\0b", None),
        ] {
            assert_eq!(normalised(path).as_deref(), form, "{path}");
        }
    }

    #[test]
    fn a_scope_covers_what_it_names_and_what_is_below() {
        for (scope, path, does) in [
            ("", "a/b", true),
            ("**", "a/b", true),
            ("notes", "notes", true),
            ("notes", "notes/a/b.md", true),
            ("notes", "notes2/a.md", false),
            ("notes/*.md", "notes/a.md", true),
            ("notes/*.md", "notes/a/b.txt", false),
            ("**/secret", "a/b/secret/c", true),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/b/c/z", true),
            ("a/**/z", "a/b/c", false),
            ("notes", "", false),
        ] {
            assert_eq!(covers(scope, path), does, "{scope} {path}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_path_stays_normal(path in "\\PC{0,60}") {
            if let Some(form) = normalised(&path) {
                prop_assert_eq!(normalised(&form), Some(form.clone()));
                prop_assert!(covers("**", &form));
                let goes_up = form.split('/').any(|part| part == "..");
                prop_assert!(!goes_up && !form.starts_with('/'));
            }
        }
    }
}
