//! Decisions about calls by their input.

use holdfast_types::SessionKind;
use serde_json::{Value, json};

use super::{compiled, main, policy};
use crate::policy::{Decision, DecisionSource, ExecReason, Reason, Rule, Subject};

const PROTECTED: Decision = Decision::NeedApproval { reason: Reason::Protected };

fn out_of(access: &'static str) -> Decision {
    Decision::Deny { layer: DecisionSource::Action, rule: Rule::OutOfScope { access } }
}

fn call(tenant: Value, subject: &Subject, tool: &str, input: Value) -> Decision {
    policy(tenant).view(subject).decide_call(tool, &input)
}

fn subagent() -> Subject {
    Subject::new(SessionKind::Subagent)
}

#[test]
fn a_denied_tool_is_denied_whatever_it_is_asked_to_do() {
    let tenant = json!({"deny": ["exec"], "exec": {"security": "full"}});
    let decision = call(tenant, &main(), "bash", json!({"command": "ls"}));

    let list = "tools.deny".to_owned();
    let layer = DecisionSource::Layer(crate::policy::Layer::Global);
    assert_eq!(
        decision,
        Decision::Deny { layer, rule: Rule::Denied { entry: "exec".to_owned(), list } }
    );
}

#[test]
fn a_command_runs_unless_the_settings_hold_it_back() {
    let ls = || json!({"command": "ls -l"});
    let refused =
        |reason| Decision::Deny { layer: DecisionSource::Exec, rule: Rule::Command(reason) };

    assert_eq!(call(json!({}), &main(), "exec", ls()), Decision::Allow);
    let none = json!({"exec": {"security": "deny"}});
    assert_eq!(call(none, &main(), "exec", ls()), refused(ExecReason::Denied));
    assert_eq!(call(json!({}), &main(), "exec", json!({})), refused(ExecReason::Empty));

    let listed = json!({"exec": {
        "security": "allowlist", "ask": "on-miss", "allowlist": [{"pattern": "ls"}],
    }});
    for (command, decision) in [
        ("ls -l", Decision::Allow),
        ("rm x", Decision::NeedApproval { reason: Reason::Command(ExecReason::Miss) }),
        ("ls; rm x", Decision::NeedApproval { reason: Reason::Command(ExecReason::Miss) }),
        ("ls $(rm x)", refused(ExecReason::Substitution)),
    ] {
        let input = json!({"command": command});
        assert_eq!(call(listed.clone(), &main(), "run_command", input), decision, "{command}");
    }
    let variables = json!({"command": "ls", "env": {"PATH": "."}});
    let reason = Reason::Command(ExecReason::Environment);
    assert_eq!(
        call(listed.clone(), &main(), "exec", variables.clone()),
        Decision::NeedApproval { reason }
    );
    assert_eq!(call(json!({}), &main(), "exec", variables), Decision::Allow);
    let none = json!({"command": "ls", "env": {}});
    assert_eq!(call(listed, &main(), "exec", none), Decision::Allow);
}

#[test]
fn commands_may_be_forbidden_or_asked_about_altogether() {
    let asked = json!({"actions": {"exec": "ask"}});
    let denied = json!({"actions": {"exec": "deny"}});
    let ask = Decision::NeedApproval { reason: Reason::Exec };
    let deny = Decision::Deny { layer: DecisionSource::Action, rule: Rule::NoExec };

    for tool in ["exec", "process", "git"] {
        let input = json!({"command": "ls"});
        assert_eq!(call(asked.clone(), &main(), tool, input.clone()), ask, "{tool}");
        assert_eq!(call(denied.clone(), &main(), tool, input), deny, "{tool}");
    }
    let both = compiled(asked, json!({"actions": {"exec": "allow"}}));
    let input = json!({"command": "ls"});
    assert_eq!(both.view(&main()).decide_call("exec", &input), ask);
}

#[test]
fn writing_to_what_an_agent_is_needs_approval() {
    for (tool, input) in [
        ("write", json!({"path": "self.md", "content": "x"})),
        ("create_file", json!({"path": "./Role.md"})),
        ("edit", json!({"path": "behaviors/do.yaml"})),
        ("delete_file", json!({"path": "behaviors"})),
        ("append_file", json!({"file": ".git/config"})),
        ("write", json!({"path": "site/.git/config"})),
        ("write", json!({"path": "site/.GIT/hooks/pre-commit"})),
        ("edit", json!({"path": "GIT~1/config"})),
        ("write", json!({"path": "bare/HEAD"})),
        ("apply_patch", json!({"patch": "--- a/x.md\n+++ b/self.md\n@@ -1 +1 @@\n"})),
        ("apply_patch", json!({"input": "*** Begin Patch\n*** Update File: self.md\n"})),
        ("apply_patch", json!({"patch": "rename from self.md\nrename to x.md\n"})),
        ("apply_patch", json!({"patch": "--- x.md\n+++ \"b/self.md\"\n"})),
        ("apply_patch", json!({"patch": "--- self.md\n+++ /dev/null\n"})),
        ("apply_patch", json!({"patch": "diff --git a/self.md b/self.md\ndeleted file mode 1\n"})),
        ("apply_patch", json!({"patch": "unreadable"})),
        ("write", json!({"target": "self.md"})),
    ] {
        assert_eq!(call(json!({}), &main(), tool, input.clone()), PROTECTED, "{tool} {input}");
    }
    for (tool, input) in [
        ("write", json!({"path": "notes/self.md"})),
        ("write", json!({"path": "site/.gitignore"})),
        ("read", json!({"path": "self.md"})),
        ("apply_patch", json!({"patch": "--- /dev/null\n+++ b/notes/new.md\n--- self.md\n"})),
    ] {
        assert_eq!(call(json!({}), &main(), tool, input), Decision::Allow, "{tool}");
    }
}

#[test]
fn a_tenant_chooses_what_is_asked_about_and_an_agent_can_only_ask_more() {
    let tenant = json!({"approvals": {
        "tools": {
            "email": "never", "web_*": "always", "write": "never", "self": "never",
            "wallet": "never",
        },
        "protected": ["plans", "a/b/c"],
    }});
    let agent = json!({"approvals": {"tools": {"web_fetch": "never", "read": "always"}}});
    let compiled = compiled(tenant, agent);
    let view = compiled.view(&Subject::new(SessionKind::Main));
    let always = Decision::NeedApproval { reason: Reason::Always };

    for (tool, input, decision) in [
        ("email", json!({}), Decision::Allow),
        ("web_fetch", json!({}), always.clone()),
        ("read", json!({"path": "a"}), always.clone()),
        ("write", json!({"path": "notes.md"}), Decision::Allow),
        // What an agent is and may do is never left to it.
        ("write", json!({"path": "self.md"}), PROTECTED),
        ("write", json!({"path": "./ROLE.md"}), PROTECTED),
        ("self", json!({"action": "change", "section": "objectives"}), Decision::Allow),
        ("self", json!({"action": "change", "section": "constraints"}), PROTECTED),
        ("self", json!({"action": "change", "section": "budget_strategy"}), PROTECTED),
        ("self", json!({"action": "change", "section": "Constraints "}), PROTECTED),
        ("self", json!({"action": "change"}), PROTECTED),
        ("self", json!({"action": "apply", "section": "objectives"}), Decision::Allow),
        ("self", json!({"action": "apply"}), PROTECTED),
        ("self", json!({"action": "propose", "kind": "behavior"}), Decision::Allow),
        ("self", json!({"action": "show"}), Decision::Allow),
        ("wallet", json!({"action": "pay"}), Decision::Allow),
        ("edit", json!({"path": "plans/a.md"}), PROTECTED),
        ("apply_patch", json!({"patch": "rename from a/b\nrename to x\n"}), PROTECTED),
        ("edit", json!({"path": "a/b/d"}), Decision::Allow),
        ("read", json!({"path": "../a"}), out_of("read")),
    ] {
        assert_eq!(view.decide_call(tool, &input), decision, "{tool}");
    }
    let shipped = policy(json!({}));
    let payment = Decision::NeedApproval { reason: Reason::Payment };
    let pays = json!({"action": "pay"});
    assert_eq!(shipped.view(&main()).decide_call("wallet", &pays), payment);
    let shows = json!({"action": "show"});
    assert_eq!(shipped.view(&main()).decide_call("wallet", &shows), Decision::Allow);
    let objectives = json!({"action": "change", "section": "objectives"});
    assert_eq!(shipped.view(&main()).decide_call("self", &objectives), PROTECTED);
    assert_eq!(shipped.view(&main()).decide("email"), always);
    assert_eq!(shipped.view(&main()).explain("email").decision, "approval");
}

#[test]
fn a_command_on_someone_s_node_needs_approval() {
    for (input, decision) in [
        (json!({"op": "list"}), Decision::Allow),
        (json!({"action": "status"}), Decision::Allow),
        (json!({"op": "exec", "command": "ls"}), PROTECTED),
        (json!({"action": "list", "op": "exec"}), PROTECTED),
        (json!({}), PROTECTED),
    ] {
        assert_eq!(call(json!({}), &main(), "nodes", input.clone()), decision, "{input}");
    }
}

#[test]
fn no_path_leaves_the_workspace_and_scopes_narrow_it() {
    let tenant = json!({"actions": {
        "root": {"read": ["notes", "src/**"], "write": ["notes"]},
        "subagent": {"write": ["notes/work"]},
    }});
    for (subject, tool, path, decision) in [
        (main(), "read", "src/a/b.rs", Decision::Allow),
        (main(), "read", "secret.md", out_of("read")),
        (main(), "write", "src/a.rs", out_of("write")),
        (main(), "write", "notes/a.md", Decision::Allow),
        (main(), "read", "notes/../secret.md", out_of("read")),
        (main(), "read", "/etc/passwd", out_of("read")),
        (
            main(),
            "send_file",
            "notes/a.md",
            Decision::Deny { layer: DecisionSource::Catalog, rule: Rule::Unknown },
        ),
        (subagent(), "write", "notes/a.md", out_of("write")),
        (subagent(), "write", "notes/work/a.md", Decision::Allow),
    ] {
        let given = call(tenant.clone(), &subject, tool, json!({"path": path}));
        assert_eq!(given, decision, "{tool} {path}");
    }
    let outside = call(json!({}), &main(), "write", json!({"path": "../x"}));
    assert_eq!(outside, out_of("write"));
}
