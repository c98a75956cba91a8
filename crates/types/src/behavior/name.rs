//! Name of a behaviour with its parameters, such as `DO:todo=T001`.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Maximum length of a name with its parameters, in bytes.
const MAX_BYTES: usize = 512;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "a behaviour is named by letters, digits, `_` and `-`, with parameters as in `DO:todo=T001,x=y`, \
     in at most {MAX_BYTES} bytes"
)]
pub struct InvalidBehaviorName;

/// Name of a behaviour, and the parameters that it is run with (spec STM-013).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BehaviorName {
    base: String,
    params: BTreeMap<String, String>,
}

impl BehaviorName {
    /// Name without parameters, as it was written.
    #[must_use]
    pub fn base(&self) -> &str {
        &self.base
    }

    #[must_use]
    pub const fn params(&self) -> &BTreeMap<String, String> {
        &self.params
    }

    /// Whether both name the same behaviour, whatever the case; parameters are not compared.
    #[must_use]
    pub fn is_same_behavior(&self, other: &Self) -> bool {
        self.base.eq_ignore_ascii_case(&other.base)
    }
}

impl FromStr for BehaviorName {
    type Err = InvalidBehaviorName;

    fn from_str(text: &str) -> Result<Self, InvalidBehaviorName> {
        let text = text.trim();
        let (base, given) = text.split_once(':').unwrap_or((text, ""));
        let is_word = |word: &str| {
            !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        if text.len() > MAX_BYTES || !is_word(base) {
            return Err(InvalidBehaviorName);
        }
        let mut params = BTreeMap::new();
        for pair in given.split([',', '&']).map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or(InvalidBehaviorName)?;
            if !is_word(key.trim()) || value.chars().any(char::is_control) {
                return Err(InvalidBehaviorName);
            }
            params.insert(key.trim().to_owned(), value.trim().to_owned());
        }
        Ok(Self { base: base.to_owned(), params })
    }
}

impl fmt::Display for BehaviorName {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(&self.base)?;
        for (at, (key, value)) in self.params.iter().enumerate() {
            write!(to, "{}{key}={value}", if at == 0 { ':' } else { ',' })?;
        }
        Ok(())
    }
}

impl TryFrom<String> for BehaviorName {
    type Error = InvalidBehaviorName;

    fn try_from(text: String) -> Result<Self, InvalidBehaviorName> {
        text.parse()
    }
}

impl From<BehaviorName> for String {
    fn from(name: BehaviorName) -> Self {
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pairs_of_parameters_are_read_and_written_again() {
        let name: BehaviorName = " DO:todo=T001, try=2 ".parse().unwrap();

        assert_eq!(name.base(), "DO");
        assert_eq!(name.params()["todo"], "T001");
        assert_eq!(name.params()["try"], "2");
        assert_eq!(name.to_string(), "DO:todo=T001,try=2");
        assert!(name.is_same_behavior(&"do".parse().unwrap()));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for text in ["", "a b", ":todo=1", "DO:todo", "DO:=1", "DO:a b=1", "../x", "DO:a=\u{7}"] {
            assert_eq!(text.parse::<BehaviorName>(), Err(InvalidBehaviorName), "{text}");
        }
        assert!("a".repeat(513).parse::<BehaviorName>().is_err());
    }
}
