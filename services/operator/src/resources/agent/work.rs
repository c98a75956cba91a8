//! How an agent works: its behaviours, its own documents of them, and what work costs it.

use std::collections::BTreeMap;

use holdfast_proto::gateway::v1::{self as pb, DeleteBehaviorRequest, PutBehaviorRequest};
use holdfast_types::HitPointSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::non_empty;

/// Documents of behaviours by their names, in YAML or JSON.
pub type BehaviorDocuments = BTreeMap<String, String>;

/// Settings of an agent that works by behaviours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Behaviors {
    /// Behaviour with which a conversation begins; `resolve_router` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Steps of a turn; 64 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_steps: Option<u32>,
    /// Changes of behaviour in a turn; 16 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_hops: Option<u32>,
    /// Seconds of a turn; 600 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_seconds: Option<u32>,
}

/// Hit points of an agent. An absent field has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HitPoints {
    /// Hit points of a rested agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max: Option<u32>,
    /// Hit points below which the agent begins no turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u32>,
    /// Thousandths of a hit point for each token of a model's input and output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token_milli: Option<u32>,
    /// Thousandths of a hit point for each call with an effect on the outside world.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_action_milli: Option<u32>,
    /// Thousandths of a hit point for each result of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_tool_milli: Option<u32>,
    /// Thousandths of a hit point for 64 KiB of inputs and results of tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_io_milli: Option<u32>,
    /// Thousandths of a hit point that the agent recovers in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub recovery_milli: Option<u32>,
}

impl Behaviors {
    pub(super) fn into_message(self) -> pb::BehaviorSettings {
        pb::BehaviorSettings {
            default: self.default.unwrap_or_default(),
            max_steps: self.max_steps.unwrap_or_default(),
            max_hops: self.max_hops.unwrap_or_default(),
            max_seconds: self.max_seconds.unwrap_or_default(),
        }
    }

    pub(super) fn from_message(settings: pb::BehaviorSettings) -> Self {
        let set = |number: u32| Some(number).filter(|number| *number > 0);
        Self {
            default: non_empty(settings.default),
            max_steps: set(settings.max_steps),
            max_hops: set(settings.max_hops),
            max_seconds: set(settings.max_seconds),
        }
    }
}

impl HitPoints {
    pub(super) fn into_message(self) -> pb::HitPointSettings {
        let usual = HitPointSettings::default();
        pb::HitPointSettings {
            max: self.max.unwrap_or(usual.max),
            floor: self.floor.unwrap_or(usual.floor),
            rates: Some(pb::HitPointRates {
                per_token_milli: self.per_token_milli.unwrap_or(usual.per_token_milli),
                per_action_milli: self.per_action_milli.unwrap_or(usual.per_action_milli),
                per_tool_milli: self.per_tool_milli.unwrap_or(usual.per_tool_milli),
                per_io_milli: self.per_io_milli.unwrap_or(usual.per_io_milli),
                recovery_milli: self.recovery_milli.unwrap_or(usual.recovery_milli),
            }),
        }
    }

    pub(super) fn from_message(settings: pb::HitPointSettings) -> Self {
        let rates = settings.rates.as_ref();
        Self {
            max: Some(settings.max),
            floor: Some(settings.floor),
            per_token_milli: rates.map(|rates| rates.per_token_milli),
            per_action_milli: rates.map(|rates| rates.per_action_milli),
            per_tool_milli: rates.map(|rates| rates.per_tool_milli),
            per_io_milli: rates.map(|rates| rates.per_io_milli),
            recovery_milli: rates.map(|rates| rates.recovery_milli),
        }
    }
}

/// The agent's own documents among the behaviours in effect.
pub fn own_documents(in_effect: Vec<pb::Behavior>) -> BehaviorDocuments {
    let own = in_effect.into_iter().filter(|behavior| behavior.layer == "agent");
    own.map(|behavior| (behavior.name, behavior.source)).collect()
}

/// Requests after which an agent has the wanted documents, and no others of its own.
pub fn document_changes(
    agent: &str,
    wanted: &BehaviorDocuments,
    known: &BehaviorDocuments,
) -> (Vec<PutBehaviorRequest>, Vec<DeleteBehaviorRequest>) {
    let differs = |(name, source): &(&String, &String)| known.get(*name) != Some(source);
    let put = wanted.iter().filter(differs).map(|(name, source)| PutBehaviorRequest {
        agent: agent.to_owned(),
        name: name.clone(),
        source: source.clone(),
        ..PutBehaviorRequest::default()
    });
    let surplus = known.keys().filter(|name| !wanted.contains_key(*name));
    let delete =
        surplus.map(|name| DeleteBehaviorRequest { agent: agent.to_owned(), name: name.clone() });
    (put.collect(), delete.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents(all: &[(&str, &str)]) -> BehaviorDocuments {
        all.iter().map(|(name, source)| ((*name).to_owned(), (*source).to_owned())).collect()
    }

    #[test]
    fn only_what_differs_is_put_and_what_is_too_much_is_deleted() {
        let known = documents(&[("check", "a"), ("do", "b"), ("plan", "c")]);
        let wanted = documents(&[("check", "a"), ("do", "d"), ("route", "e")]);

        let (put, delete) = document_changes("coach", &wanted, &known);

        let put: Vec<_> = put.iter().map(|one| (one.name.as_str(), one.source.as_str())).collect();
        assert_eq!(put, [("do", "d"), ("route", "e")]);
        let delete: Vec<_> = delete.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(delete, ["plan"]);
        assert_eq!(document_changes("coach", &known, &known), (Vec::new(), Vec::new()));
    }

    #[test]
    fn behaviors_of_other_layers_are_not_the_agent_s_own() {
        let behavior = |layer: &str, name: &str| pb::Behavior {
            layer: layer.to_owned(),
            name: name.to_owned(),
            source: "x".to_owned(),
            ..pb::Behavior::default()
        };

        let own = own_documents(vec![
            behavior("built-in", "plan"),
            behavior("tenant", "check"),
            behavior("agent", "do"),
        ]);

        assert_eq!(own, documents(&[("do", "x")]));
    }
}
