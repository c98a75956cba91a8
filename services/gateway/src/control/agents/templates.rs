//! Templates of agents, as settings for a new one.

use holdfast_agent::templates::{AgentTemplate, TEMPLATES};
use holdfast_proto::gateway::v1 as pb;

pub(super) fn all() -> Vec<pb::AgentTemplate> {
    TEMPLATES.iter().map(template).collect()
}

fn behavior(name: &str, source: &str) -> pb::TemplateBehavior {
    pb::TemplateBehavior { name: name.to_owned(), source: source.to_owned() }
}

fn template(of: &AgentTemplate) -> pb::AgentTemplate {
    let agent = pb::Agent {
        name: of.name.to_owned(),
        description: of.description.to_owned(),
        instructions: of.instructions.trim_end().to_owned(),
        tools: of.tools.iter().map(|tool| (*tool).to_owned()).collect(),
        behaviors: of.behaviors.map(|_| pb::BehaviorSettings::default()),
        ..pb::Agent::default()
    };
    let documents = of.behaviors.unwrap_or_default().iter();
    pb::AgentTemplate {
        name: of.name.to_owned(),
        title: of.title.to_owned(),
        description: of.description.to_owned(),
        agent: Some(agent),
        behaviors: documents.map(|(name, source)| behavior(name, source)).collect(),
    }
}
