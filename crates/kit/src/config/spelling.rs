//! Suggestions for misspelt names.

/// Returns a suggestion, or the list of known names, as the end of an error message.
pub(super) fn suggestion(given: &str, known: &[&str]) -> String {
    match known.iter().filter(|name| is_similar(given, name)).min_by_key(|name| edits(given, name))
    {
        Some(name) => format!("; did you mean `{name}`?"),
        None => format!("; there are {}", alternatives(known).replace(" or ", " and ")),
    }
}

/// Joins the names as alternatives: `a`, `b` or `c`.
pub(super) fn alternatives(names: &[&str]) -> String {
    let mut names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.sort_unstable();
    names.dedup();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// Whether `given` is probably a misspelling of `name`: at most one edit for every three letters.
pub(super) fn is_similar(given: &str, name: &str) -> bool {
    edits(given, name) <= name.len() / 3
}

/// Levenshtein distance, in characters.
fn edits(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_near_and_another_word_is_not() {
        assert_eq!(suggestion("gatewy", &["database", "gateway"]), "; did you mean `gateway`?");
        assert_eq!(suggestion("weather", &["nats", "mesh"]), "; there are `mesh` and `nats`");
        assert!(is_similar("nats", "nats") && !is_similar("name", "nats"));
    }

    #[test]
    fn an_edit_is_a_letter_added_left_out_or_changed() {
        for (a, b, n) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "axc", 1), ("kit", "ktis", 2)]
        {
            assert_eq!((edits(a, b), edits(b, a)), (n, n), "{a} {b}");
        }
    }
}
