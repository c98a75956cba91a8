//! Explanations of why a tool is allowed or denied (spec POL-015).

use serde::{Deserialize, Serialize};

use super::decision::{Decision, DecisionSource, Rule};

/// Explanation of a decision about a tool. A stable format that programs read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    pub tool: String,
    /// `allow`, `deny` or `approval`.
    pub decision: String,
    /// Source of a denial: a layer's name, `visibility`, `catalog`, `action` or `exec`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<String>,
    /// Number of the layer, 1 to 9.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u8>,
    /// Entry that denied the tool, in canonical form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// List with the entry, or the allow-list without the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    pub reason: String,
}

impl Explanation {
    pub(crate) fn new(tool: &str, decision: &Decision) -> Self {
        let (word, layer, reason) = match decision {
            Decision::Allow => ("allow", None, "no layer removes it".to_owned()),
            Decision::Deny { layer, rule } => ("deny", Some(*layer), rule.to_string()),
            Decision::NeedApproval { reason } => ("approval", None, reason.to_string()),
        };
        let (entry, list) = match decision {
            Decision::Deny { rule: Rule::Denied { entry, list }, .. } => {
                (Some(entry.clone()), Some(list.clone()))
            }
            Decision::Deny { rule: Rule::NotAllowed { list }, .. } => (None, Some(list.clone())),
            Decision::Allow | Decision::Deny { .. } | Decision::NeedApproval { .. } => (None, None),
        };
        Self {
            tool: tool.to_owned(),
            decision: word.to_owned(),
            layer: layer.map(|layer| layer.as_str().to_owned()),
            number: layer.and_then(DecisionSource::number),
            entry,
            list,
            reason,
        }
    }
}

impl std::fmt::Display for Explanation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.tool, self.decision)?;
        match (&self.layer, self.number) {
            (Some(layer), Some(number)) => write!(f, " by layer {number} ({layer})")?,
            (Some(layer), None) => write!(f, " by {layer}")?,
            (None, _) => {}
        }
        write!(f, ": {}", self.reason)
    }
}
