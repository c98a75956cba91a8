//! Policy and approval of commands.

use std::{collections::BTreeMap, sync::Arc};

use holdfast_agent::policy::{CompiledPolicy, Decision, Permission, SandboxMode, Subject};
use holdfast_sandbox::Backend;
use holdfast_tools::{Approval, CommandLine};
use holdfast_types::Elevated;
use serde_json::{Value, json};

/// Field of the subject that holds the hashes of scripts.
const SCRIPTS_FIELD: &str = "scripts";

/// In characters.
const MAX_SUMMARY_CHARS: usize = 300;

/// Policy for the commands of one turn.
#[derive(Debug, Clone)]
pub(crate) struct CommandPolicy {
    policy: Arc<CompiledPolicy>,
    subject: Subject,
    elevated: Elevated,
}

impl CommandPolicy {
    pub(crate) const fn new(policy: Arc<CompiledPolicy>, subject: Subject) -> Self {
        Self { policy, subject, elevated: Elevated::Ask }
    }

    /// Sets the conversation's setting for commands that need an approval.
    pub(crate) fn with_elevated(self, elevated: Elevated) -> Self {
        Self { elevated, ..self }
    }

    pub(crate) fn decide(&self, tool: &str, input: &Value) -> Decision {
        self.policy.view(&self.subject).decide_call(tool, input)
    }
}

/// Whether a command needs an approval. Without a policy it does.
///
/// | command | in a sandbox | without a sandbox |
/// |---|---|---|
/// | denied by the policy | denied | denied |
/// | needs an approval by the policy | asked | asked |
/// | wants the network | runs if tenant and agent allow it, asked if neither says | the same |
/// | any other | runs | asked, denied if the conversation's commands must be isolated |
///
/// With `/elevated off`, commands to be asked about are denied. With `/elevated full` they run, but
/// not without a sandbox (decision 0022).
pub(super) fn required_approval(
    command_policy: &CommandPolicy,
    backend: Backend,
    line: &CommandLine,
) -> Approval {
    let view = command_policy.policy.view(&command_policy.subject);
    let mut is_asked = backend == Backend::Plain;
    match view.decide_call("exec", &policy_input(line)) {
        Decision::Allow => {}
        Decision::NeedApproval { .. } => is_asked = true,
        Decision::Deny { rule, .. } => return Approval::Deny(format!("not run: {rule}")),
    }
    if backend == Backend::Plain && view.sandbox_mode() != SandboxMode::Off {
        return Approval::Deny(
            "not run: commands of this conversation need a sandbox, and this runner has none \
             (sandbox_mode)"
                .to_owned(),
        );
    }
    if line.network {
        match view.network() {
            Some(Permission::Allow) => {}
            Some(Permission::Ask) | None => is_asked = true,
            Some(Permission::Deny) => {
                return Approval::Deny("not run: commands may not use the network here".to_owned());
            }
        }
    }
    if !is_asked {
        return Approval::Never;
    }
    match (command_policy.elevated, backend) {
        (Elevated::Off, _) => Approval::Deny(
            "not run: it needs a person's approval, and this conversation asks for none \
             (/elevated off)"
                .to_owned(),
        ),
        // Without a sandbox each command is approved individually, never in advance.
        (Elevated::Full, Backend::Plain) | (Elevated::On | Elevated::Ask, _) => {
            approval_request(line)
        }
        (Elevated::Full, _) => {
            metrics::counter!("holdfast_runner_commands_elevated_total").increment(1);
            Approval::Never
        }
    }
}

/// Input of the tool call as the policy sees it.
fn policy_input(line: &CommandLine) -> Value {
    json!({ "command": line.script, "env": line.env })
}

fn approval_request(line: &CommandLine) -> Approval {
    let subject = json!({
        "command": line.script,
        "workdir": line.workdir,
        "env": line.env,
        "network": line.network,
    });
    let mut summary = String::from("run ");
    if line.network {
        summary.push_str("with the network ");
    }
    if !line.workdir.is_empty() {
        summary.push_str(&format!("in {} ", line.workdir));
    }
    let script = line.script.split_whitespace().collect::<Vec<_>>().join(" ");
    summary.push_str(&format!("`{script}`"));
    if summary.chars().count() > MAX_SUMMARY_CHARS {
        summary = summary.chars().take(MAX_SUMMARY_CHARS - 1).chain(['…']).collect();
    }
    Approval::Ask { subject: subject.to_string(), summary, pattern: always_pattern(line) }
}

/// Programs and scripts that an approval of a command is bound to.
#[derive(Debug, Default)]
pub(super) struct CommandBinding {
    /// Paths of the programs, by name.
    pub(super) programs: BTreeMap<String, String>,
    /// Hashes of the workspace files that are run, by path.
    pub(super) scripts: BTreeMap<String, String>,
}

/// Binds an approval to programs and scripts: if a path or a hash changes, the command needs a new
/// one. No pattern can say what a script will do, so "always" covers only this exact command.
pub(super) fn bind_approval(
    runs: CommandBinding,
    (subject, mut summary, pattern): (String, String, Option<String>),
) -> Approval {
    let mut subject: Value = serde_json::from_str(&subject).unwrap_or(Value::String(subject));
    subject["programs"] = json!(runs.programs);
    if runs.scripts.is_empty() {
        return Approval::Ask { subject: subject.to_string(), summary, pattern };
    }
    subject[SCRIPTS_FIELD] = json!(runs.scripts);
    let short = |hash: &String| hash.chars().take(12).collect::<String>();
    let of = runs.scripts.iter().map(|(path, hash)| format!("{path} ({})", short(hash)));
    summary.push_str(&format!(", with {} as now", of.collect::<Vec<_>>().join(", ")));
    Approval::Ask { subject: subject.to_string(), summary, pattern: None }
}

/// Whether an approval's subject contains scripts.
pub(crate) fn is_bound_to_scripts(subject: &str) -> bool {
    serde_json::from_str::<Value>(subject).is_ok_and(|subject| subject.get(SCRIPTS_FIELD).is_some())
}

/// Pattern for "always": the program and its next word. Only for a single plain command without
/// variables or network.
fn always_pattern(line: &CommandLine) -> Option<String> {
    let is_plain =
        |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "._/=:,@%+-".contains(c));
    if line.network || !line.env.is_empty() || line.script.trim().contains('\n') {
        return None;
    }
    let words: Vec<&str> = line.script.split_whitespace().collect();
    if !words.iter().all(is_plain) {
        return None;
    }
    match words.as_slice() {
        [] => None,
        [program, first, ..] if !first.starts_with('-') => Some(format!("{program} {first} *")),
        [program, ..] => Some((*program).to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_agent::policy::{self, Ask, Catalog, Defaults, ExecSettings, Security};
    use holdfast_types::SessionKind;

    use super::*;

    #[test]
    fn what_is_approved_is_bound_to_the_script_as_it_is() {
        let asked = |hash: Option<&str>| {
            let scripts = hash.map(|hash| ("run.sh".to_owned(), hash.to_owned()));
            let programs = [("sh".to_owned(), "/usr/bin/dash".to_owned())].into();
            let runs = CommandBinding { programs, scripts: scripts.into_iter().collect() };
            let asked =
                ("{}".to_owned(), "run `sh run.sh`".to_owned(), Some("sh run.sh *".to_owned()));
            match bind_approval(runs, asked) {
                Approval::Ask { subject, summary, pattern } => (subject, summary, pattern),
                other => panic!("{other:?}"),
            }
        };

        let (one, summary, pattern) = asked(Some("aaaaaaaaaaaaaaaa"));
        assert_eq!(summary, "run `sh run.sh`, with run.sh (aaaaaaaaaaaa) as now");
        assert_eq!(pattern, None);
        assert!(is_bound_to_scripts(&one) && one.contains("/usr/bin/dash"), "{one}");
        assert_ne!(asked(Some("b")).0, one);
        let (plain, _, pattern) = asked(None);
        assert_eq!(pattern.as_deref(), Some("sh run.sh *"));
        assert!(!is_bound_to_scripts(&plain), "{plain}");
    }

    fn line(script: &str) -> CommandLine {
        CommandLine {
            script: script.to_owned(),
            workdir: String::new(),
            env: BTreeMap::new(),
            timeout: None,
            patience: None,
            network: false,
        }
    }

    fn command_policy(tenant: &policy::Settings) -> CommandPolicy {
        let (catalog, _) = Catalog::new([policy::Tool::native("exec")]);
        let agent = policy::Settings::default();
        let compiled = CompiledPolicy::new(Arc::new(catalog), &Defaults::default(), tenant, &agent);
        let owner = Subject { is_owner: true, ..Subject::new(SessionKind::Main) };
        CommandPolicy::new(Arc::new(compiled.unwrap()), owner)
    }

    fn is_asked(approval: &Approval) -> bool {
        matches!(approval, Approval::Ask { .. })
    }

    #[test]
    fn in_the_sandbox_only_the_network_is_asked_about() {
        let command_policy = command_policy(&policy::Settings::default());
        let network = CommandLine { network: true, ..line("curl example.com") };

        assert_eq!(
            required_approval(&command_policy, Backend::Bubblewrap, &line("ls")),
            Approval::Never
        );
        assert!(is_asked(&required_approval(&command_policy, Backend::Bubblewrap, &network)));
        assert!(is_asked(&required_approval(&command_policy, Backend::Plain, &line("ls"))));
    }

    #[test]
    fn a_command_that_must_be_isolated_does_not_run_without_a_sandbox() {
        let isolated = policy::Settings {
            sandbox_mode: Some(SandboxMode::Isolated),
            ..policy::Settings::default()
        };
        let command_policy = command_policy(&isolated);

        let isolated = required_approval(&command_policy, Backend::Bubblewrap, &line("ls"));
        assert_eq!(isolated, Approval::Never);
        let refused = required_approval(&command_policy, Backend::Plain, &line("ls"));
        assert!(matches!(refused, Approval::Deny(_)), "{refused:?}");
    }

    #[test]
    fn what_the_tenant_says_holds() {
        let network = CommandLine { network: true, ..line("ls") };
        for (permission, expected) in
            [(Permission::Allow, "runs"), (Permission::Ask, "asked"), (Permission::Deny, "denied")]
        {
            let actions = serde_json::from_value(json!({ "network": permission })).unwrap();
            let tenant = policy::Settings { actions, ..policy::Settings::default() };
            let found =
                match required_approval(&command_policy(&tenant), Backend::Bubblewrap, &network) {
                    Approval::Never => "runs",
                    Approval::Ask { .. } => "asked",
                    Approval::Deny(_) => "denied",
                };
            assert_eq!(found, expected);
        }

        let exec = ExecSettings {
            security: Some(Security::Allowlist),
            ask: Some(Ask::OnMiss),
            ..ExecSettings::default()
        };
        let tenant = policy::Settings { exec, ..policy::Settings::default() };
        assert!(is_asked(&required_approval(
            &command_policy(&tenant),
            Backend::Bubblewrap,
            &line("ls")
        )));
    }

    #[test]
    fn an_approval_given_beforehand_holds_in_the_sandbox_and_lifts_nothing_that_is_denied() {
        let network = CommandLine { network: true, ..line("ls") };
        let with = |tenant: &policy::Settings, elevated, backend| {
            required_approval(&command_policy(tenant).with_elevated(elevated), backend, &network)
        };
        let (usual, sandbox) = (policy::Settings::default(), Backend::Bubblewrap);
        let actions = serde_json::from_value(json!({ "network": "deny" })).unwrap();
        let denied = policy::Settings { actions, ..policy::Settings::default() };

        assert_eq!(with(&usual, Elevated::Full, sandbox), Approval::Never);
        assert!(is_asked(&with(&usual, Elevated::Full, Backend::Plain)));
        assert!(is_asked(&with(&usual, Elevated::Ask, sandbox)));
        assert!(is_asked(&with(&usual, Elevated::On, sandbox)));
        assert!(matches!(with(&usual, Elevated::Off, sandbox), Approval::Deny(_)));
        assert!(matches!(with(&denied, Elevated::Full, sandbox), Approval::Deny(_)));
    }

    #[test]
    fn always_means_the_same_program_and_nothing_that_hides_another() {
        for (script, meant) in [
            ("ls -la", Some("ls")),
            ("git log -5", Some("git log *")),
            ("python3 run.py", Some("python3 run.py *")),
            ("ls; rm x", None),
            ("echo $HOME", None),
            ("ls\nrm x", None),
        ] {
            assert_eq!(always_pattern(&line(script)).as_deref(), meant, "{script}");
        }
        assert_eq!(always_pattern(&CommandLine { network: true, ..line("ls") }), None);
    }

    #[test]
    fn another_command_is_another_subject() {
        let subject = |line: &CommandLine| match approval_request(line) {
            Approval::Ask { subject, .. } => subject,
            other => panic!("{other:?}"),
        };
        let one = line("ls");
        assert_eq!(subject(&one), subject(&one.clone()));
        for other in [
            line("ls "),
            CommandLine { workdir: "a".into(), ..one.clone() },
            CommandLine { network: true, ..one.clone() },
            CommandLine { env: BTreeMap::from([("A".into(), "1".into())]), ..one.clone() },
        ] {
            assert_ne!(subject(&one), subject(&other));
        }
    }
}
