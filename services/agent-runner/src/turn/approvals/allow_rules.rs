//! Matching of calls against "always" rules.
//!
//! | a rule | covers |
//! |---|---|
//! | any | a call whose subject is the one that was approved, to the byte |
//! | of `exec`, with a pattern | commands as an allow-list has them: of a chain each, none within another, no variables, no network, no script of the workspace |
//! | of another tool, with a pattern | calls of which the tool says the same pattern |

use holdfast_agent::policy::{Ask, ExecRule, ExecVerdict, Security, exec_approval};
use holdfast_session::{ApprovalRule, subject_hash};
use serde_json::Value;
use uuid::Uuid;

use crate::tools::shell::is_bound_to_scripts;

/// A call that needs an approval.
pub(super) struct CallToMatch<'a> {
    pub(super) tool: &'a str,
    pub(super) input: &'a Value,
    pub(super) subject: &'a str,
    pub(super) pattern: Option<&'a str>,
}

/// Ids of the rules that allow a call; `None` if no rule does.
pub(super) fn matching_rules(
    wanted: &CallToMatch<'_>,
    rules: &[ApprovalRule],
) -> Option<Vec<Uuid>> {
    let rules: Vec<&ApprovalRule> = rules.iter().filter(|rule| rule.tool == wanted.tool).collect();
    let hash = subject_hash(wanted.subject);
    if let Some(same) = rules.iter().find(|rule| rule.subject_hash == hash) {
        return Some(vec![same.id]);
    }
    if wanted.tool == "exec" && is_bound_to_scripts(wanted.subject) {
        // A pattern names the file that is run, not its contents, which may have changed.
        return None;
    }
    if wanted.tool == "exec" {
        return matching_exec_rules(wanted.input, &rules);
    }
    let pattern = wanted.pattern?;
    let like = rules.iter().find(|rule| rule.pattern.as_deref() == Some(pattern))?;
    Some(vec![like.id])
}

fn matching_exec_rules(input: &Value, rules: &[&ApprovalRule]) -> Option<Vec<Uuid>> {
    let command = input.get("command")?.as_str()?;
    let is_set = |field: &str| match input.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(items)) => !items.is_empty(),
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Bool(true) | Value::Number(_)) => true,
    };
    // Variables or another folder can make a name run another program. Network access was not
    // approved.
    if ["env", "network", "workdir", "cwd"].into_iter().any(is_set) {
        return None;
    }
    let list: Vec<ExecRule> = rules
        .iter()
        .filter_map(|rule| {
            let pattern = rule.pattern.clone().filter(|pattern| is_exact(pattern))?;
            Some(ExecRule { id: rule.id.to_string(), pattern })
        })
        .collect();
    match exec_approval(command, &list, Security::Allowlist, Ask::OnMiss) {
        ExecVerdict::Allowed { rules, .. } => {
            Some(rules.iter().filter_map(|id| id.parse().ok()).collect())
        }
        ExecVerdict::Denied { .. } | ExecVerdict::Ask { .. } => None,
    }
}

/// Whether a pattern of `exec` allows one command only. A runner of the version before, which may
/// still be there during an update, stores wider ones: a program with any arguments.
fn is_exact(pattern: &str) -> bool {
    pattern.split_whitespace().nth(1).is_some() && !pattern.contains('*')
}

#[cfg(test)]
mod tests {
    use holdfast_types::AgentId;
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn rule(tool: &str, subject: &str, pattern: Option<&str>) -> ApprovalRule {
        ApprovalRule {
            id: Uuid::now_v7(),
            agent: AgentId::generate(),
            tool: tool.to_owned(),
            subject_hash: subject_hash(subject).to_vec(),
            pattern: pattern.map(str::to_owned),
            summary: String::new(),
            created_by: None,
            created_at: Timestamp::UNIX_EPOCH,
            last_used_at: None,
            last_used: None,
        }
    }

    fn is_covered(
        tool: &str,
        input: &Value,
        pattern: Option<&str>,
        rules: &[ApprovalRule],
    ) -> bool {
        let subject = input.to_string();
        matching_rules(&CallToMatch { tool, input, subject: &subject, pattern }, rules).is_some()
    }

    #[test]
    fn always_covers_commands_as_an_allow_list_does_and_no_more() {
        let rules = ["git log -p", "ls -l", "make *", "bash"]
            .map(|pattern| rule("exec", pattern, Some(pattern)));
        for (command, covers) in [
            ("git log -p", true),
            ("git log", false),
            ("git push", false),
            ("git log -p && ls -l", true),
            ("git log -p && rm x", false),
            ("git log -p; rm x", false),
            ("git log -p | sh", false),
            ("ls -l $(rm x)", false),
            ("ls -l `rm x`", false),
            ("ls -l > x", false),
            // Wider rules of the version before.
            ("make all", false),
            ("bash -c evil", false),
        ] {
            let input = json!({"command": command});
            assert_eq!(is_covered("exec", &input, None, &rules), covers, "{command}");
        }
    }

    #[test]
    fn a_command_with_variables_the_network_or_another_folder_is_asked_about() {
        let rules = [rule("exec", "x", Some("ls -l"))];
        for input in [
            json!({"command": "ls -l", "env": {"PATH": "."}}),
            json!({"command": "ls -l", "network": true}),
            json!({"command": "ls -l", "workdir": "evil"}),
        ] {
            assert!(!is_covered("exec", &input, Some("ls -l"), &rules), "{input}");
        }
        let plain = json!({"command": "ls -l", "env": {}, "network": false, "workdir": ""});
        assert!(is_covered("exec", &plain, Some("ls -l"), &rules));
    }

    #[test]
    fn a_script_of_the_workspace_is_covered_as_it_was_and_by_no_pattern() {
        let input = json!({"command": "sh run.sh"});
        let subject =
            |content: &str| format!("command: sh run.sh\nfile: run.sh\ncontent: {content}");
        let rules = [rule("exec", "x", Some("sh run.sh")), rule("exec", &subject("a"), None)];
        let is_covered = |subject: &str| {
            let wanted = CallToMatch { tool: "exec", input: &input, subject, pattern: None };
            matching_rules(&wanted, &rules).is_some()
        };

        assert!(is_covered(&subject("a")));
        assert!(!is_covered(&subject("b")));
        assert!(is_covered("command: sh run.sh"));
    }

    #[test]
    fn the_very_subject_is_covered_and_one_that_differs_in_a_byte_is_not() {
        let sent = json!({"to": "ada@example.com"});
        let rules = [rule("email", &sent.to_string(), None)];

        assert!(is_covered("email", &sent, None, &rules));
        assert!(!is_covered("email", &json!({"to": "ada@example.co"}), None, &rules));
        assert!(!is_covered("other", &sent, None, &rules));
    }

    #[test]
    fn another_tool_s_pattern_is_what_the_tool_says_it_is() {
        let rules = [rule("email", "x", Some("to ada"))];

        assert!(is_covered("email", &json!({"n": 1}), Some("to ada"), &rules));
        assert!(!is_covered("email", &json!({"n": 1}), Some("to eve"), &rules));
        assert!(!is_covered("email", &json!({"n": 1}), None, &rules));
    }
}
