//! Compiled behaviour.

use std::time::Duration;

use holdfast_types::{BehaviorName, BehaviorRole};
use serde::{Deserialize, Serialize};

use super::{
    document::{Document, DocumentError, LimitsDocument, LlmDocument, shown},
    memory::MemoryPlan,
    protocol::Protocol,
    template::{Place, Placeholder, Template},
    toolbox::Toolbox,
};

/// Maximum size of a text of a behaviour, in bytes.
const MAX_TEXT_BYTES: usize = 64 << 10;

const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_NAME_BYTES: usize = 64;
const MAX_NAMES: usize = 200;
const MAX_MODEL_FALLBACKS: usize = 5;
const MAX_STEP_LIMIT: u32 = 10_000;
const MAX_TOOL_ROUNDS: u32 = 100;
const MAX_CALLS_PER_ROUND: u32 = 64;
const MAX_DEADLINE_MS: u64 = 60 * 60 * 1_000;

/// Names that a result uses for something else.
const RESERVED: [&str; 5] = ["wait", "wait_for_msg", "wait_for_event", "end", "done"];

/// Input of a behaviour that has no template of its own.
const DEFAULT_INPUT: &str = "{{new_event}}\n{{new_msg}}\n{{current_todo}}\n{{last_step_summary}}";

const DEFAULT_SUMMARY: &str = "Step {{step_index}} of {{behavior}} (limit {{step_limit}}, {{cost}})\n\
    Thinking: {{llm_result.thinking}}\n\
    Reply: {{llm_result.reply}}\n\
    Next: {{llm_result.next_behavior}}\n\
    {{action_results}}";

/// Access of a behaviour's tools to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileAccessMode {
    /// Tools read files and change none.
    ReadOnly,
    ReadWrite,
}

/// Limits of a step, which the model is not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Rounds of native tool calls within a step.
    pub max_tool_rounds: u32,
    pub max_calls_per_round: u32,
    /// Time for one model request; a step that has taken so long has no further round of calls.
    pub deadline: Duration,
    /// Size limit of the prompt, in tokens.
    pub max_prompt_tokens: usize,
    /// Size limit of an answer, in tokens.
    pub max_completion_tokens: u32,
}

/// Models of a behaviour. Each is `provider:model` or an alias.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ModelPolicy {
    /// `None` is the agent's model.
    pub preferred: Option<String>,
    pub fallbacks: Vec<String>,
    pub temperature: Option<f64>,
}

/// Behaviour: prompt, tools, output protocol and limits of a kind of step (spec BHV-002).
#[derive(Debug, Clone, PartialEq)]
pub struct Behavior {
    /// Lower case.
    pub name: String,
    pub description: String,
    pub role: BehaviorRole,
    /// Steps after which the behaviour ends, counted from 0; 0 is no limit.
    pub step_limit: u32,
    /// Behaviour that follows at the step limit; `None` is the default behaviour, after a wait.
    pub fallback: Option<String>,
    pub protocol: Protocol,
    pub limits: StepLimits,
    pub toolbox: Toolbox,
    pub models: ModelPolicy,
    pub files: FileAccessMode,
    pub(super) process_rule: Template,
    pub(super) policy: Template,
    pub(super) input: Template,
    pub(super) memory: MemoryPlan,
    pub(super) step_summary: Template,
}

impl Behavior {
    /// Parses and checks a document in YAML or JSON. Its name is `name` if it has none of its own.
    ///
    /// # Errors
    ///
    /// The field, and what to write instead.
    pub fn parse(source: &str, name: &str) -> Result<Self, DocumentError> {
        let document = Document::parse(source, name)?;
        check_texts(&document)?;
        let name = document.name.as_str();
        let role = document.role.unwrap_or_else(|| role_of(name));
        let files = files_of(role, document.files)?;
        check_fallback(document.fallback.as_deref())?;
        check_names(&document)?;
        if document.step_limit.is_some_and(|limit| !(1..=MAX_STEP_LIMIT).contains(&limit)) {
            let problem = format!("write 1 to {MAX_STEP_LIMIT}, or leave it out for no limit");
            return Err(DocumentError::at("step_limit", problem));
        }
        let template = |field: &str, text: &str, place: Place| {
            Template::parse(text, place).map_err(|problem| DocumentError::at(field, problem))
        };
        let or = |text: &str, default: &str| {
            if text.trim().is_empty() { default.to_owned() } else { text.to_owned() }
        };
        let input = template("input", &or(&document.input, DEFAULT_INPUT), Place::Input)?;
        if !input.has_input() {
            let problem = "it has no placeholder for input, so no step would ever begin: write \
                           `{{new_msg}}`, `{{new_event}}`, `{{current_todo}}`, \
                           `{{next_ready_todo}}` or `{{last_step_summary}}`";
            return Err(DocumentError::at("input", problem));
        }
        let summary = or(&document.step_summary, DEFAULT_SUMMARY);
        Ok(Self {
            role,
            step_limit: document.step_limit.unwrap_or_default(),
            protocol: document.output_protocol.compile()?,
            limits: limits_of(role, &document.limits)?,
            models: models_of(document.llm)?,
            files,
            process_rule: template("process_rule", &document.process_rule, Place::Rules)?,
            policy: template("policy", &document.policy, Place::Rules)?,
            input,
            memory: document.memory.map_or_else(|| Ok(MemoryPlan::default()), MemoryPlan::new)?,
            step_summary: template("step_summary", &summary, Place::Summary)?,
            toolbox: document.toolbox.compile(document.tools),
            fallback: document.fallback,
            name: document.name,
            description: document.description,
        })
    }

    /// Paths of the workspace's files that the behaviour's texts include.
    #[must_use]
    pub fn included_files(&self) -> Vec<&str> {
        let texts = [&self.process_rule, &self.policy, &self.input, &self.step_summary];
        let texts = texts.into_iter().chain(self.memory.templates());
        let mut paths: Vec<&str> = texts
            .flat_map(Template::placeholders)
            .filter_map(|placeholder| {
                if let Placeholder::Include(path) = placeholder {
                    Some(path.as_str())
                } else {
                    None
                }
            })
            .collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    }
}

fn check_texts(document: &Document) -> Result<(), DocumentError> {
    let name = document.name.as_str();
    let is_lower = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_name = name.bytes().all(|byte| is_lower(byte) || b"_-".contains(&byte));
    if !(1..=MAX_NAME_BYTES).contains(&name.len()) || !is_name {
        let problem = format!(
            "`{}` is no name of a behaviour: write 1 to {MAX_NAME_BYTES} of a-z, 0-9, `_` and `-`",
            shown(name)
        );
        return Err(DocumentError::at("name", problem));
    }
    if RESERVED.contains(&name) {
        let problem = format!("`{name}` means something else in a result: choose another name");
        return Err(DocumentError::at("name", problem));
    }
    if document.process_rule.trim().is_empty() {
        return Err(DocumentError::at("process_rule", "write what the behaviour does"));
    }
    if document.description.chars().count() > MAX_DESCRIPTION_CHARS {
        let problem = format!("it has {MAX_DESCRIPTION_CHARS} characters at most");
        return Err(DocumentError::at("description", problem));
    }
    for (field, text) in [
        ("process_rule", &document.process_rule),
        ("policy", &document.policy),
        ("input", &document.input),
        ("step_summary", &document.step_summary),
    ] {
        if text.len() > MAX_TEXT_BYTES {
            let problem = format!("it has {} bytes, and {MAX_TEXT_BYTES} is the most", text.len());
            return Err(DocumentError::at(field, problem));
        }
    }
    Ok(())
}

/// Role of a behaviour whose document names none.
fn role_of(name: &str) -> BehaviorRole {
    match name {
        "resolve_router" | "router" => BehaviorRole::Route,
        "plan" | "replan" => BehaviorRole::Plan,
        "do" => BehaviorRole::Do,
        "check" | "bench" => BehaviorRole::Check,
        "adjust" => BehaviorRole::Adjust,
        _ => BehaviorRole::Other,
    }
}

/// PLAN and CHECK change nothing, whatever is written (spec WSP-005).
fn files_of(
    role: BehaviorRole,
    files: Option<FileAccessMode>,
) -> Result<FileAccessMode, DocumentError> {
    match (role, files) {
        (
            BehaviorRole::Route | BehaviorRole::Plan | BehaviorRole::Check,
            Some(FileAccessMode::ReadWrite),
        ) => Err(DocumentError::at(
            "files",
            "a behaviour that routes, plans or checks changes no files: write `read_only`, or \
             another `role`",
        )),
        (_, Some(files)) => Ok(files),
        (BehaviorRole::Do | BehaviorRole::Other, None) => Ok(FileAccessMode::ReadWrite),
        (
            BehaviorRole::Route | BehaviorRole::Plan | BehaviorRole::Check | BehaviorRole::Adjust,
            None,
        ) => Ok(FileAccessMode::ReadOnly),
    }
}

fn check_fallback(fallback: Option<&str>) -> Result<(), DocumentError> {
    let Some(name) = fallback else { return Ok(()) };
    match name.parse::<BehaviorName>() {
        Ok(name) if !RESERVED.contains(&&*name.base().to_ascii_lowercase()) => Ok(()),
        Ok(_) | Err(_) => {
            let problem = format!("`{}` is no behaviour: write its name", shown(name));
            Err(DocumentError::at("fallback", problem))
        }
    }
}

/// Checks the names of tools and skills.
fn check_names(document: &Document) -> Result<(), DocumentError> {
    let listed = document.tools.as_ref().map_or(&[][..], |list| list.names());
    let is_name = |name: &str| {
        (1..=128).contains(&name.len())
            && !name.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    let mut count = 0;
    for name in listed.iter().chain(document.toolbox.names()) {
        count += 1;
        if !is_name(name) {
            let problem = format!("`{}` is no name of a tool or skill", shown(name));
            return Err(DocumentError::at("toolbox", problem));
        }
    }
    if count > MAX_NAMES {
        let problem = format!("it names {count} tools and skills, and {MAX_NAMES} is the most");
        return Err(DocumentError::at("toolbox", problem));
    }
    Ok(())
}

fn limits_of(role: BehaviorRole, limits: &LimitsDocument) -> Result<StepLimits, DocumentError> {
    for (field, given, least, most) in [
        ("max_tool_rounds", u64::from(limits.max_tool_rounds), 0, u64::from(MAX_TOOL_ROUNDS)),
        (
            "max_tool_calls_per_round",
            u64::from(limits.max_tool_calls_per_round),
            1,
            u64::from(MAX_CALLS_PER_ROUND),
        ),
        ("deadline_ms", limits.deadline_ms, 1, MAX_DEADLINE_MS),
        ("max_prompt_tokens", u64::from(limits.max_prompt_tokens), 1_000, 10_000_000),
        ("max_completion_tokens", u64::from(limits.max_completion_tokens), 1, 10_000_000),
    ] {
        if !(least..=most).contains(&given) {
            let problem = format!("write {least} to {most}, and not {given}");
            return Err(DocumentError::at(&format!("limits.{field}"), problem));
        }
    }
    Ok(StepLimits {
        // A message is routed by one request, without tools (spec RTE-010).
        max_tool_rounds: if role == BehaviorRole::Route { 0 } else { limits.max_tool_rounds },
        max_calls_per_round: limits.max_tool_calls_per_round,
        deadline: Duration::from_millis(limits.deadline_ms),
        max_prompt_tokens: limits.max_prompt_tokens as usize,
        max_completion_tokens: limits.max_completion_tokens,
    })
}

fn models_of(llm: LlmDocument) -> Result<ModelPolicy, DocumentError> {
    let is_model = |model: &str| {
        (1..=200).contains(&model.len())
            && !model.chars().any(|c| c.is_control() || c.is_whitespace())
    };
    for (field, model) in llm
        .preferred
        .iter()
        .map(|model| ("llm.preferred", model))
        .chain(llm.fallbacks.iter().map(|model| ("llm.fallbacks", model)))
    {
        if !is_model(model) {
            let problem =
                format!("`{}` is no model: write `provider:model` or an alias", shown(model));
            return Err(DocumentError::at(field, problem));
        }
    }
    if llm.fallbacks.len() > MAX_MODEL_FALLBACKS {
        let problem = format!("{MAX_MODEL_FALLBACKS} models is the most");
        return Err(DocumentError::at("llm.fallbacks", problem));
    }
    if llm.temperature.is_some_and(|given| !(0.0..=2.0).contains(&given)) {
        return Err(DocumentError::at("llm.temperature", "write a number from 0 to 2"));
    }
    Ok(ModelPolicy {
        preferred: llm.preferred,
        fallbacks: llm.fallbacks,
        temperature: llm.temperature,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::behavior::builtin::{BUILT_IN, DEFAULT_BEHAVIOR};
    use crate::behavior::spelling_warnings;

    /// The example of the specification (BHV-005), in other words.
    const ROUTER: &str = "
process_rule: |
  1) Small talk: a short reply, next_behavior END
  2) Anything else: next_behavior PLAN
  3) Memory: fill memory_queries if it helps, else []

  {{workspace/to_agent.md}}
  {{cwd/to_agent.md}}
policy: |
  * JSON only, with all three fields.
  * memory_queries is an array.
output_protocol:
  mode: RouteResult
memory:
  total_limt: 12000
  agent_memory: { limit: 3000 }
  history_messages: { limit: 3000, max_percent: 0.3 }
  session_summaries: { limit: 6000 }
input: |
  {{new_event}}
  {{new_msg}}
limits:
  max_tool_rounds: 1
  max_tool_calls_per_round: 4
  deadline_ms: 45000
";

    #[test]
    fn the_sample_of_the_specification_is_read_with_its_misspelt_limit() {
        let router = Behavior::parse(ROUTER, "resolve_router").unwrap();

        assert_eq!((router.name.as_str(), router.role), ("resolve_router", BehaviorRole::Route));
        assert_eq!(router.protocol, Protocol::RouteResult);
        assert_eq!(router.files, FileAccessMode::ReadOnly);
        assert_eq!(router.limits.max_calls_per_round, 4);
        assert_eq!(router.limits.max_tool_rounds, 0, "a router has no tools");
        assert_eq!(router.limits.deadline, Duration::from_secs(45));
        assert_eq!(router.included_files(), ["to_agent.md"]);
        assert_eq!(router.memory.total_limit, 12_000);
    }

    #[test]
    fn the_built_in_router_has_the_limits_of_the_sample() {
        let sample = Behavior::parse(ROUTER, DEFAULT_BEHAVIOR).unwrap();
        let found = BUILT_IN.iter().find(|(name, _)| *name == DEFAULT_BEHAVIOR);

        let router = found.map(|(name, source)| Behavior::parse(source, name).unwrap()).unwrap();

        assert_eq!(router.memory, sample.memory);
        assert_eq!(router.limits.deadline, sample.limits.deadline);
    }

    #[test]
    fn a_misspelt_field_is_warned_about_with_the_name_to_write() {
        let warnings = spelling_warnings(ROUTER);
        let both = spelling_warnings(r#"{"faild_back": "plan", "memory": {"total_limt": 1}}"#);
        let right = spelling_warnings("fallback: plan\nmemory: {total_limit: 1}");

        assert_eq!(warnings, ["`memory.total_limt` is misspelt: write `total_limit`"]);
        assert_eq!(both.len(), 2, "{both:?}");
        assert!(both[1].contains("write `fallback`"), "{both:?}");
        assert_eq!((right.len(), spelling_warnings("[").len()), (0, 0));
    }

    #[test]
    fn json_and_yaml_give_the_same_behavior_and_a_name_may_be_in_the_document() {
        let yaml = "name: look\nprocess_rule: Look.\nfaild_back: ADJUST:todo=T001\nstep_limit: 3\n";
        let json = r#"{"name": "look", "process_rule": "Look.",
                       "fallback": "ADJUST:todo=T001", "step_limit": 3}"#;

        let behavior = Behavior::parse(yaml, "x").unwrap();

        assert_eq!(Behavior::parse(json, "y").unwrap(), behavior);
        assert_eq!((behavior.name.as_str(), behavior.step_limit), ("look", 3));
        assert_eq!(behavior.fallback.as_deref(), Some("ADJUST:todo=T001"));
        assert_eq!(behavior.files, FileAccessMode::ReadWrite);
    }

    #[test]
    fn an_error_names_the_field_and_what_to_write() {
        for (source, says) in [
            ("", "write `process_rule: …` at least"),
            ("process_rule: ''", "`process_rule`: write what the behaviour does"),
            ("process_rule: [", "it is no YAML and no JSON: line 1"),
            ("process_rule: x\nstep_limits: 3", "unknown field `step_limits`"),
            ("process_rule: x\nstep_limit: 0", "`step_limit`: write 1 to 10000, or leave it out"),
            ("process_rule: x\nstep_limit: many", "`step_limit`: invalid type"),
            ("process_rule: x\nmemory: {total: 3}", "`memory.total`: unknown field"),
            ("process_rule: x\nmemory: {agent_memory: {max_percent: 2}}", "`memory.agent_memory"),
            ("process_rule: x\ninput: Go on.", "`input`: it has no placeholder for input"),
            ("process_rule: '{{new_msg}}'", "`process_rule`: `{{new_msg}}` cannot be used here"),
            ("process_rule: x\nname: Big Plan", "`name`: `Big Plan` is no name"),
            ("process_rule: x\nname: end", "`name`: `end` means something else"),
            ("process_rule: x\nfallback: WAIT", "`fallback`: `WAIT` is no behaviour"),
            ("process_rule: x\nrole: plan\nfiles: read_write", "`files`: a behaviour that routes"),
            ("process_rule: x\nlimits: {deadline_ms: 0}", "`limits.deadline_ms`: write 1 to"),
            ("process_rule: x\nllm: {temperature: 3}", "`llm.temperature`: write a number"),
            ("process_rule: x\noutput_protocol: Poem", "`output_protocol`: `Poem` is not known"),
            ("process_rule: x\ntoolbox: {tools: ['a b']}", "`toolbox`: `a b` is no name"),
        ] {
            let error = Behavior::parse(source, "x").unwrap_err().to_string();
            assert!(error.contains(says), "{source}: {error}");
        }
    }

    #[test]
    fn a_behavior_that_plans_or_checks_never_writes_files() {
        for (name, files) in [
            ("plan", FileAccessMode::ReadOnly),
            ("check", FileAccessMode::ReadOnly),
            ("adjust", FileAccessMode::ReadOnly),
            ("resolve_router", FileAccessMode::ReadOnly),
            ("do", FileAccessMode::ReadWrite),
            ("water_flowers", FileAccessMode::ReadWrite),
        ] {
            assert_eq!(Behavior::parse("process_rule: x", name).unwrap().files, files, "{name}");
        }
        let adjust = Behavior::parse("process_rule: x\nfiles: read_write", "adjust").unwrap();
        assert_eq!(adjust.files, FileAccessMode::ReadWrite);
    }

    proptest! {
        #[test]
        fn any_document_is_a_behavior_or_an_error(
            field in "process_rule|input|memory|toolbox|tools|llm|limits|step_limit|output_protocol",
            value in "[\\[\\]{}:,'\"a-z0-9 .\n-]{0,40}",
        ) {
            let _ = Behavior::parse(&format!("process_rule: x\n{field}: {value}"), "x");
        }
    }
}
