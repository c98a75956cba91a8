//! Log lines and errors read as parts of a sentence: lower case, no full stop.

use super::sources;

const MACROS: [&str; 5] = ["trace!(", "debug!(", "info!(", "warn!(", "error!("];

/// The messages of all log lines and `#[error(…)]` attributes in a text.
fn messages(text: &str) -> Vec<String> {
    let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).fold(
        String::new(),
        |mut code, line| {
            code.push_str(line);
            code.push('\n');
            code
        },
    );
    let mut found = Vec::new();
    for name in MACROS.iter().copied().chain(["#[error("]) {
        for (at, _) in code.match_indices(name) {
            let before = code[..at].chars().next_back();
            // `thiserror!(` and the like are others' macros.
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                continue;
            }
            found.extend(message(&code[at + name.len()..]));
        }
    }
    found
}

/// The literal that stands as an argument of its own, of what follows a macro's opening bracket.
fn message(rest: &str) -> Option<String> {
    let mut depth = 0;
    let mut begins_argument = true;
    let mut chars = rest.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                let mut literal = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '\\' => literal.extend(chars.next()),
                        '"' => break,
                        c => literal.push(c),
                    }
                }
                if depth == 0 && begins_argument {
                    return Some(literal);
                }
                begins_argument = false;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' if depth == 0 => return None,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => begins_argument = true,
            c if c.is_whitespace() => {}
            _ => begins_argument = false,
        }
    }
    None
}

/// Whether a message begins with a capital that is not a name's, or ends with a full stop.
fn is_badly_put(message: &str) -> bool {
    let word: String = message.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let mut letters = word.chars();
    let is_capital = letters.next().is_some_and(char::is_uppercase);
    // `NATS`, `HOLDFAST_MODEL`; and names that are written so.
    let is_name = letters.next().is_some_and(|c| c.is_uppercase() || c == '_')
        || ["Postgres", "Redis", "Telegram"].contains(&word.as_str());
    (is_capital && !is_name) || (message.ends_with('.') && !message.ends_with("..."))
}

/// Texts that are laid down word for word, and go to the model: spec SBX-003.
fn is_given(message: &str) -> bool {
    message.starts_with("Command blocked by safety guard (")
}

#[test]
fn log_lines_and_errors_are_lower_case_without_a_full_stop() {
    let (mut seen, mut bad) = (0, Vec::new());
    for source in sources::all() {
        if source.path.ends_with("architecture/logs.rs") {
            continue;
        }
        for message in messages(&source.text) {
            seen += 1;
            if is_badly_put(&message) && !is_given(&message) {
                bad.push(format!("{}: {message:?}", source.path.display()));
            }
        }
    }
    assert!(seen > 50, "only {seen} messages found: does the scanner still read them?");
    assert!(bad.is_empty(), "{bad:#?}");
}

#[test]
fn the_scanner_finds_messages_and_no_other_literals() {
    let text = r#"
        info!(name = "Loud.", run.id = %id, "run finished");
        // warn!("In a comment.");
        tracing::warn!(
            problem = %format!("Inner. {}", 1),
            "waiting: check `url`, \
             or stop",
        );
        #[error("there is no {what}")]
        my_error!("Not ours.");
    "#;

    let found = messages(text);

    assert_eq!(found.len(), 3, "{found:?}");
    assert!(found.contains(&"run finished".to_owned()));
    assert!(found.contains(&"there is no {what}".to_owned()));
}

#[test]
fn what_is_badly_put_is_told_from_what_is_well_put() {
    for bad in ["Run finished", "run finished."] {
        assert!(is_badly_put(bad), "{bad}");
    }
    for good in ["run finished", "NATS is away", "HOLDFAST_MODEL is wrong", "`X` is wrong", "{0}"] {
        assert!(!is_badly_put(good), "{good}");
    }
}
