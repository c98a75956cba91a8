//! Where an installed skill is from: the file `.skill-origin.json` beside its `SKILL.md` (spec
//! SKL-008, SKL-012).

use serde::{Deserialize, Serialize};

use crate::{Error, Flaw, SkillName};

/// Where an installed skill is from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The version of this form: 1.
    pub version: u32,
    /// The registry.
    pub registry: String,
    /// What it is called there.
    pub slug: SkillName,
    /// The version that was installed.
    pub installed_version: String,
    /// When, in milliseconds since 1970.
    pub installed_at: i64,
}

impl Origin {
    /// What the file is called.
    pub const FILE: &str = ".skill-origin.json";

    /// The only form that there is.
    pub const VERSION: u32 = 1;

    /// Reads the file.
    ///
    /// # Errors
    ///
    /// If it is not of the one form that there is. `file` is its path, for the error.
    pub fn read(file: &str, text: &[u8]) -> Result<Self, Error> {
        let read: Self = serde_json::from_slice(text).map_err(|error| {
            let at = format!("line {}, column {}", error.line(), error.column());
            Error::document(file, Flaw::of(format!("{at}: is no record of an installation")))
        })?;
        if read.version != Self::VERSION {
            let problem = format!("is {}, and only {} is known", read.version, Self::VERSION);
            return Err(Error::document(file, Flaw::at("version", problem)));
        }
        Ok(read)
    }

    /// The file.
    #[must_use]
    pub fn write(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).unwrap_or_default();
        text.push(b'\n');
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_five_fields_and_is_read_again() {
        let origin = Origin {
            version: 1,
            registry: "clawhub".to_owned(),
            slug: "gifgrep".parse().unwrap(),
            installed_version: "1.2.3".to_owned(),
            installed_at: 1_730_000_000_000,
        };

        let text = origin.write();

        let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
        let wanted = serde_json::json!({
            "version": 1, "registry": "clawhub", "slug": "gifgrep",
            "installed_version": "1.2.3", "installed_at": 1_730_000_000_000_i64,
        });
        assert_eq!(json, wanted);
        assert_eq!(Origin::read("f", &text).unwrap(), origin);
    }

    #[test]
    fn another_form_is_refused() {
        for (text, told) in [
            ("{", "f: line 1, column 1: is no record"),
            (
                r#"{"version":2,"registry":"r","slug":"s","installed_version":"1","installed_at":0}"#,
                "f: `version` is 2, and only 1 is known",
            ),
            (
                r#"{"version":1,"registry":"r","slug":"../s","installed_version":"1","installed_at":0}"#,
                "is no record",
            ),
        ] {
            let error = Origin::read("f", text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }
}
