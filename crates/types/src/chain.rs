//! Chains: stages of subagent tasks, one stage after another (spec RTE-016).
//!
//! ```text
//! stage 0      stage 1 (each)          stage 2
//! plan ──list──┬─▶ work: task 1 ──┬──▶ review ──▶ the requester is told
//!              ├─▶ work: task 2 ──┤
//!              └─▶ work: task 3 ──┘
//! ```
//!
//! The steps of a stage run at the same time, each as a subagent; a stage begins when the one
//! before it has ended. Prompts have placeholders: `{{input}}` is the request that started the
//! chain, `{{results}}` the results of the stage before, `{{task}}` the task of a list that the
//! step is for. Stored as JSON: fields are only ever added, with a default.

use serde::{Deserialize, Serialize};

pub const MAX_STAGES: usize = 8;

/// Maximum number of subagents that run at the same time in a stage.
pub const MAX_STEPS_PER_STAGE: usize = 8;

const MAX_PROMPT_BYTES: usize = 20_000;
const MAX_STEP_NAME_BYTES: usize = 64;

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// One sentence about the chain's purpose, for agents to read.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    pub stages: Vec<Stage>,
}

/// Steps that run at the same time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    pub steps: Vec<ChainStep>,
    /// The stage before ends with a list of tasks, and a step runs for each task: the step that the
    /// task names, else the first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub each: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChainStep {
    pub name: String,
    /// Name of the agent that runs the step; `None` is the agent that started the chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// `None` is the model of the step's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// The tool bundle; `None` is all tools of the step's agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<String>,
    /// Paths that the file tools may read; `None` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<Vec<String>>,
    /// Paths that the file tools may change; `None` is all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<Vec<String>>,
    /// Time limit in seconds; `None` is an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
    pub prompt: String,
}

/// Name of the chain that is part of the product.
pub const SHIPPED_CHAIN_NAME: &str = "plan-work-review";

const PLAN_PROMPT: &str = "Split what is asked for below into at most five tasks that can be done at the \
same time, none of which needs the result of another. Do none of them. Answer with nothing but a \
JSON list of strings, each of which says all that its worker needs to know, who sees nothing else.\n\n\
{{input}}";

const WORK_PROMPT: &str = "{{task}}\n\nThis is one part of a larger request, which others work on too; do \
your part only:\n\n{{input}}";

const REVIEW_PROMPT: &str = "A request was split and worked on in parts. Check the parts against the \
request, say what is missing or wrong, and put them together into one answer to it.\n\nThe \
request:\n{{input}}\n\nThe parts:\n{{results}}";

impl Chain {
    /// Returns the chain that every agent has: a planner, parallel workers, a reviewer.
    #[must_use]
    pub fn shipped() -> Self {
        let step = |name: &str, bundle: Option<&str>, prompt: &str| ChainStep {
            name: name.to_owned(),
            bundle: bundle.map(str::to_owned),
            prompt: prompt.to_owned(),
            ..ChainStep::default()
        };
        let stage = |step: ChainStep, each: bool| Stage { steps: vec![step], each };
        Self {
            description: "Splits a large request, works on the parts at the same time, and puts \
                          them together."
                .to_owned(),
            stages: vec![
                stage(step("plan", Some("read"), PLAN_PROMPT), false),
                stage(step("work", None, WORK_PROMPT), true),
                stage(step("review", Some("read"), REVIEW_PROMPT), false),
            ],
        }
    }

    /// Checks the limits, the names and the prompts.
    ///
    /// # Errors
    ///
    /// A sentence that says what to change.
    pub fn check(&self) -> Result<(), String> {
        if !(1..=MAX_STAGES).contains(&self.stages.len()) {
            let got = self.stages.len();
            return Err(format!("a chain has 1 to {MAX_STAGES} stages, and this one has {got}"));
        }
        if self.stages[0].each {
            return Err("the first stage has none before it: it cannot be for `each`".to_owned());
        }
        for stage in &self.stages {
            if !(1..=MAX_STEPS_PER_STAGE).contains(&stage.steps.len()) {
                let got = stage.steps.len();
                return Err(format!(
                    "a stage has 1 to {MAX_STEPS_PER_STAGE} steps, and one has {got}"
                ));
            }
            for (at, step) in stage.steps.iter().enumerate() {
                step.check()?;
                if stage.steps[..at].iter().any(|other| other.name == step.name) {
                    return Err(format!("two steps of a stage are called `{}`", step.name));
                }
            }
        }
        Ok(())
    }
}

impl ChainStep {
    fn check(&self) -> Result<(), String> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if !(1..=MAX_STEP_NAME_BYTES).contains(&self.name.len()) || !self.name.chars().all(is_name)
        {
            let shown: String = self.name.chars().take(80).collect();
            return Err(format!(
                "`{shown}` is not a step's name: write 1 to {MAX_STEP_NAME_BYTES} of a-z, A-Z, 0-9, `_` \
                 and `-`"
            ));
        }
        let name = &self.name;
        match self.prompt.len() {
            _ if self.prompt.trim().is_empty() => {
                Err(format!("the step `{name}` has no prompt: say what it is to do"))
            }
            _ if self.prompt.contains('\0') => {
                Err(format!("the prompt of `{name}` has a NUL in it"))
            }
            got if got > MAX_PROMPT_BYTES => Err(format!(
                "the prompt of `{name}` is {got} bytes, and {MAX_PROMPT_BYTES} are the most"
            )),
            _ if self.seconds.is_some_and(|seconds| !(1..=86_400).contains(&seconds)) => {
                Err(format!("`seconds` of `{name}` must be from 1 to 86400"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_chain_passes_its_own_check_and_comes_back_as_it_was_stored() {
        let chain = Chain::shipped();
        assert_eq!(chain.check(), Ok(()));

        let stored = serde_json::to_string(&chain).unwrap();
        assert_eq!(serde_json::from_str::<Chain>(&stored).unwrap(), chain);
    }

    #[test]
    fn what_could_never_work_is_refused_with_what_to_change() {
        let shipped = Chain::shipped();
        let with = |change: fn(&mut Chain)| {
            let mut chain = shipped.clone();
            change(&mut chain);
            chain.check().unwrap_err()
        };

        assert!(with(|chain| chain.stages.clear()).contains("1 to 8 stages"));
        assert!(with(|chain| chain.stages[0].each = true).contains("first stage"));
        assert!(with(|chain| chain.stages[1].steps.clear()).contains("1 to 8 steps"));
        assert!(with(|chain| chain.stages[0].steps[0].prompt = " ".into()).contains("no prompt"));
        assert!(with(|chain| chain.stages[0].steps[0].name = "a b".into()).contains("`a b`"));
        assert!(with(|chain| chain.stages[0].steps[0].seconds = Some(0)).contains("`seconds`"));
        let twice = with(|chain| {
            let step = chain.stages[1].steps[0].clone();
            chain.stages[1].steps.push(step);
        });
        assert!(twice.contains("called `work`"));
    }

    #[test]
    fn a_misspelt_field_is_not_passed_over() {
        let wrong = r#"{"stages":[{"steps":[{"name":"a","prompt":"b","agnet":"c"}]}]}"#;

        assert!(serde_json::from_str::<Chain>(wrong).is_err());
    }
}
