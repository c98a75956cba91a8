//! Fingerprints of calls: an approval applies only to a call with the same fingerprint.

use std::fmt;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::name::canonical;

/// Fingerprint of a tool call, the same on every runner and in every version.
///
/// SHA-256 of the tool's canonical name and its input as canonical JSON: sorted keys, no spaces,
/// numbers as written. Aliases and the order of keys make no difference; everything else does.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// Computes the fingerprint of a call.
    #[must_use]
    pub fn of(tool: &str, input: &Value) -> Self {
        let mut text = String::new();
        write(input, &mut text);
        let mut digest = Sha256::new();
        digest.update(b"holdfast.call.v1\0");
        digest.update(canonical(tool).as_bytes());
        digest.update(b"\0");
        digest.update(text.as_bytes());
        Self(hex(&digest.finalize()))
    }

    /// Returns a fingerprint that also depends on something outside the input, such as a command's
    /// folder or the digest of its script: a script that was changed after the approval is another
    /// call.
    #[must_use]
    pub fn bound_to(&self, what: &str, value: &str) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"holdfast.bound.v1\0");
        for part in [self.0.as_str(), what, value] {
            // Lengths keep different lists of parts distinct.
            digest.update(part.len().to_be_bytes());
            digest.update(part.as_bytes());
        }
        Self(hex(&digest.finalize()))
    }

    /// Returns the fingerprint as 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes canonical JSON, independent of the build's map order.
fn write(value: &Value, into: &mut String) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            into.push_str(&value.to_string());
        }
        Value::Array(items) => {
            into.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    into.push(',');
                }
                write(item, into);
            }
            into.push(']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by(|a, b| a.0.cmp(b.0));
            into.push('{');
            for (at, (key, item)) in fields.into_iter().enumerate() {
                if at > 0 {
                    into.push(',');
                }
                into.push_str(&Value::from(key.as_str()).to_string());
                into.push(':');
                write(item, into);
            }
            into.push('}');
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_same_call_has_the_same_fingerprint_however_it_is_written() {
        let a = Fingerprint::of("bash", &json!({"command": "ls", "timeout": 5}));
        let text = r#" { "timeout":5, "command" : "ls" } "#;
        let b = Fingerprint::of("EXEC", &serde_json::from_str(text).unwrap());

        assert_eq!(a, b);
    }

    #[test]
    fn it_does_not_change_from_version_to_version() {
        let print = Fingerprint::of("exec", &json!({"command": "ls", "a": [1, null, "é\n"]}));

        assert_eq!(
            print.as_str(),
            "e12974c0ecfa969c1d62088fb4f79a680969cdd51f4f986a2a5357921d64feb5"
        );
    }

    #[test]
    fn a_changed_call_is_another_call() {
        let print = |tool, input| Fingerprint::of(tool, &input);
        let one = print("exec", json!({"command": "ls"}));

        for other in [
            print("exec", json!({"command": "ls "})),
            print("exec", json!({"command": "ls", "cwd": "x"})),
            print("exec", json!({"command": ["ls"]})),
            print("process", json!({"command": "ls"})),
            one.bound_to("script", "abc"),
        ] {
            assert_ne!(one, other);
        }
        assert_ne!(one.bound_to("script", "abc"), one.bound_to("script", "abd"));
        assert_ne!(one.bound_to("ab", "c"), one.bound_to("a", "bc"));
    }

    proptest! {
        #[test]
        fn two_inputs_share_a_fingerprint_only_if_they_are_equal(
            a in "[a-c\"{}:,]{0,4}", b in "[a-c\"{}:,]{0,4}",
        ) {
            let print = |text: &str| Fingerprint::of("t", &json!({"x": text, "y": [text]}));

            prop_assert_eq!(print(&a) == print(&b), a == b);
        }
    }
}
