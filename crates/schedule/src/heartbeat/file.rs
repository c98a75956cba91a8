//! Whether `HEARTBEAT.md` says anything (spec HBT-008): if not, no model is asked.

/// Whether nothing stands in it but blank lines, headings and points of a list without a word.
///
/// `# heading` is a heading; `#TODO` is something to do.
#[must_use]
pub fn is_empty(content: &str) -> bool {
    content.trim_start_matches('\u{feff}').lines().all(|line| is_ignorable(line.trim()))
}

fn is_ignorable(line: &str) -> bool {
    if let Some(rest) = line.strip_prefix('#') {
        return rest.is_empty() || rest.starts_with('#') || rest.starts_with(char::is_whitespace);
    }
    matches!(line, "" | "-" | "*" | "- [ ]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_and_empty_points_ask_nothing() {
        for content in [
            "",
            "\n \t\r\n",
            "# Heartbeat",
            "#",
            "## Tasks\n\n- \n*\n- [ ] \n",
            "\u{feff}# a",
            "#\tx",
        ] {
            assert!(is_empty(content), "{content:?}");
        }
    }

    #[test]
    fn one_line_that_says_something_is_enough() {
        for content in [
            "#TODO call",
            "# Tasks\n- [x]",
            "- [ ] call",
            "- a",
            "* *",
            "x",
            "<!-- -->",
            "-[ ]",
            "1.",
        ] {
            assert!(!is_empty(content), "{content:?}");
        }
    }
}
