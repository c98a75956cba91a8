//! Paths that a model may name.

use crate::ToolError;

/// Maximum length of a path, in bytes.
pub const MAX_PATH_LEN: usize = 512;

/// Root of the files as commands see it; a model may write it before a path.
const ROOT: &str = "/workspace/";

/// Normalises a model's path: relative, and within the agent's files.
///
/// # Errors
///
/// `Tell`, with the rule that the path breaks.
pub fn file_path(said: &str) -> Result<String, ToolError> {
    match directory_path(said)?.as_str() {
        "" => Err(ToolError::Tell("`path` is empty: name a file".to_owned())),
        path => Ok(path.to_owned()),
    }
}

/// Normalises a directory's path; empty for the root.
pub(crate) fn directory_path(said: &str) -> Result<String, ToolError> {
    let refuse = |why: &str| {
        let shown: String = crate::untrusted::one_line(said).chars().take(80).collect();
        Err(ToolError::Tell(format!("`{shown}` is no path here: {why}")))
    };
    if said.len() > MAX_PATH_LEN {
        let got = said.len();
        return Err(ToolError::Tell(format!("a path of {got} bytes: {MAX_PATH_LEN} are the most")));
    }
    if said.chars().any(|letter| letter.is_control() || letter == '\\') {
        return refuse("it may hold no control character and no backslash");
    }
    let inside = match said.strip_prefix(ROOT) {
        Some(inside) => inside,
        None if said == ROOT.trim_end_matches('/') => "",
        None => said,
    };
    if inside.starts_with('/') {
        return refuse("it must be relative, as in `notes/today.md`");
    }
    let mut parts = Vec::new();
    for part in inside.split('/') {
        match part {
            "" | "." => {}
            ".." => return refuse("it may not go up with `..`"),
            part if part.trim() != part => {
                return refuse("no part of it may begin or end with a space");
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_path_is_told_in_one_form() {
        for (said, meant) in [
            ("a.md", "a.md"),
            ("./a.md", "a.md"),
            ("/workspace/notes/a.md", "notes/a.md"),
            ("notes//a.md", "notes/a.md"),
            ("notes/./a.md", "notes/a.md"),
            ("..a/b..", "..a/b.."),
            ("語/é", "語/é"),
        ] {
            assert_eq!(file_path(said).unwrap(), meant, "{said}");
        }
        for all in ["", ".", "./", "/workspace", "/workspace/"] {
            assert_eq!(directory_path(all).unwrap(), "", "{all}");
            assert!(file_path(all).is_err(), "{all}");
        }
    }

    #[test]
    fn what_leads_out_or_deceives_is_refused() {
        let long = "a".repeat(513);
        for said in [
            "/etc/passwd",
            "..",
            "../x",
            "a/../../x",
            "/workspace/../etc/passwd",
            "/workspace//../x",
            "/workspacex/a",
            "a\0b",
            "a\nb",
            "a\\b",
            "..\\x",
            "C:\\x",
            " a",
            "a /b",
            &long,
        ] {
            assert!(matches!(directory_path(said), Err(ToolError::Tell(_))), "{said}");
        }
    }

    proptest! {
        #[test]
        fn what_is_accepted_stays_inside_and_is_its_own_form(said in "[./a\\\\w \u{0}-\u{2f}]{0,24}") {
            if let Ok(path) = file_path(&said) {
                prop_assert!(!path.starts_with('/'));
                prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")));
                prop_assert_eq!(file_path(&path).unwrap(), path);
            }
        }
    }
}
