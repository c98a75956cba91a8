//! The `agents_list` tool: lists the tenant's agents.

use std::{fmt::Write as _, sync::Arc};

use holdfast_types::Effect;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{Call, Mesh, Tool, ToolError};

/// List the agents that work for your owner, with what each is for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AgentsListInput {
    /// List also those that cannot answer now, with the reason.
    #[serde(default)]
    include_inactive: bool,
}

#[derive(Debug)]
pub struct AgentsList<M>(pub Arc<M>);

impl<M: Mesh> Tool for AgentsList<M> {
    const NAME: &'static str = "agents_list";
    const EFFECT: Effect = Effect::Reads;
    type Input = AgentsListInput;

    async fn call(&self, call: Call, input: AgentsListInput) -> Result<String, ToolError> {
        let mut agents = self.0.agents(&call).await?;
        agents.retain(|agent| input.include_inactive || agent.inactive.is_none());
        if agents.is_empty() {
            return Ok("There are no agents.".to_owned());
        }
        let mut text = String::new();
        for agent in agents {
            let you = if agent.name == call.agent_name { ", you" } else { "" };
            // Writing to a `String` cannot fail.
            let _ = write!(text, "- {} ({}{you})", agent.name, agent.model);
            let what: Vec<&str> = agent.description.split_whitespace().collect();
            if !what.is_empty() {
                let _ = write!(text, ": {}", what.join(" "));
            }
            if let Some(reason) = &agent.inactive {
                let _ = write!(text, " [inactive: {reason}]");
            }
            text.push('\n');
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use crate::mesh::tests::{said, world};

    #[tokio::test]
    async fn each_agent_is_a_line_and_the_asker_is_marked() {
        let (call, _, tools) = world();

        let answer = said(tools.call(call, "agents_list", "{}").await);

        assert_eq!(answer, "- coach (demo:demo, you): helps to learn\n- main (demo:demo)\n");
    }

    #[tokio::test]
    async fn an_agent_that_cannot_answer_is_listed_on_request_with_the_reason() {
        let (call, _, tools) = world();

        let input = r#"{"include_inactive":true}"#;
        let answer = said(tools.call(call, "agents_list", input).await);

        assert!(answer.contains("- idle (demo:demo) [inactive: it has no model]\n"), "{answer}");
    }
}
