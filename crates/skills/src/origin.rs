//! Origin of an installed skill: the file `.skill-origin.json` beside its `SKILL.md` (spec SKL-008,
//! SKL-012).

use serde::{Deserialize, Serialize};

use crate::SkillName;

/// Contents of `.skill-origin.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// Version of the file format: 1.
    pub version: u32,
    pub registry: String,
    /// Name of the skill in the registry.
    pub slug: SkillName,
    /// Installed version; without one, the first 12 digits of the SHA-256.
    pub installed_version: String,
    /// Time of the installation, in milliseconds since 1970.
    pub installed_at: i64,
}

impl Origin {
    pub const FILE: &str = ".skill-origin.json";

    /// The only file format version.
    pub const VERSION: u32 = 1;

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
        assert_eq!(serde_json::from_slice::<Origin>(&text).unwrap(), origin);
    }
}
