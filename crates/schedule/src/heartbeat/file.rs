//! Check whether `HEARTBEAT.md` has content (spec HBT-008); without content no model is asked.

/// Returns whether the file has only blank lines, headings, comments and empty list items.
///
/// `# heading` is a heading; `#TODO` is content. A comment is enclosed in `<!--` and `-->`, as in
/// the file that each new agent gets; without an end it is content.
#[must_use]
pub fn is_empty(content: &str) -> bool {
    let content = without_comments(content.trim_start_matches('\u{feff}'));
    content.lines().all(|line| is_ignorable(line.trim()))
}

fn without_comments(content: &str) -> String {
    let (mut kept, mut rest) = (String::with_capacity(content.len()), content);
    while let Some((before, comment)) = rest.split_once("<!--")
        && let Some((_, after)) = comment.split_once("-->")
    {
        kept.push_str(before);
        rest = after;
    }
    kept.push_str(rest);
    kept
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
            "<!-- -->",
            "<!--\nlike this:\n- call\n-->\n# Tasks\n<!-- and -->- <!-- -->\n",
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
            "<!-- - call",
            "<!-- like this: --> call",
            "-->",
            "-[ ]",
            "1.",
        ] {
            assert!(!is_empty(content), "{content:?}");
        }
    }
}
