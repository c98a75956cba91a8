//! What a model gets from the two tools.

use std::sync::{Mutex, PoisonError};

use holdfast_tools::{AllowedHosts, AllowedTools, HostContext, Registry as Tools};
use holdfast_types::{AgentId, AgentName, RunId, SessionId, TenantId};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Registries, Registry, Verdict,
    archive::attack::{skill, zip},
    registry::fake::Fake,
};

/// An agent's tree, as far as it matters here.
#[derive(Debug, Default)]
struct Tree {
    policy: Policy,
    /// Whether somebody other than the owner listens.
    is_strangers: bool,
    kept: Mutex<Vec<(String, Installation)>>,
}

impl Tree {
    fn kept(&self) -> Vec<(String, Installation)> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl SkillTarget for Tree {
    fn check(&self, _: &Call) -> Result<(), ToolError> {
        if self.is_strangers { Err(ToolError::Tell("not here".to_owned())) } else { Ok(()) }
    }

    async fn policy(&self, _: &Call) -> anyhow::Result<Policy> {
        Ok(self.policy.clone())
    }

    async fn present(&self, _: &Call) -> anyhow::Result<Vec<TreePath>> {
        let files = self.kept().into_iter().flat_map(|(_, kept)| kept.files);
        Ok(files.map(|(path, _)| path).collect())
    }

    async fn made(&self, call: &Call) -> anyhow::Result<Option<Origin>> {
        let made = self.kept().into_iter().find(|(key, _)| *key == call.key);
        Ok(made.map(|(_, kept)| kept.origin))
    }

    async fn keep(&self, call: &Call, installation: Installation) -> Result<(), ToolError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push((call.key.clone(), installation));
        Ok(())
    }
}

fn call(key: &str) -> Call {
    Call {
        tenant: TenantId::generate(),
        agent: AgentId::generate(),
        agent_name: AgentName::new("coach"),
        session: SessionId::generate(),
        run: RunId::generate(),
        key: key.to_owned(),
        allowed: AllowedTools::matching(|_| true),
        hosts: AllowedHosts::default(),
        cancelled: CancellationToken::new(),
        host: HostContext::default(),
    }
}

fn world(fake: Fake, policy: Policy) -> (Arc<Tree>, Tools) {
    let registries = Registries::new(vec![Arc::new(fake) as Arc<dyn Registry>]).unwrap();
    let (finder, home) =
        (Arc::new(Finder::new(registries)), Arc::new(Tree { policy, ..Tree::default() }));
    let tools = Tools::default().with_skills(Arc::clone(&home), finder, Limits::default());
    (home, tools)
}

async fn ask(tools: &Tools, key: &str, name: &str, input: &str) -> Result<String, String> {
    let made = tools.call(call(key), name, input).await;
    made.map(|output| output.for_llm).map_err(|error| error.to_string())
}

#[tokio::test]
async fn what_is_found_is_shown_as_what_strangers_wrote() {
    let fake = Fake { found: Ok(vec![("pdf", 0.9)]), ..Fake::new("hub") };
    let (_, tools) = world(fake, Policy::default());

    let told = ask(&tools, "s:1:1:a", "find_skills", r#"{"query":"read a pdf"}"#).await.unwrap();

    assert!(
        told.starts_with("What stands between the two markers comes from the registries"),
        "{told}"
    );
    assert!(told.contains("- slug `pdf`, registry `hub`, no version: pdf: s\n"), "{told}");
}

#[tokio::test]
async fn a_skill_is_installed_once_however_often_the_call_is_made() {
    let fake = Fake { archive: zip(&[skill("pdf")]), ..Fake::new("hub") };
    let (home, tools) = world(fake, Policy::default());
    let input = r#"{"slug":"pdf","registry":"hub"}"#;

    let first = ask(&tools, "s:1:1:a", "install_skill", input).await;
    let again = ask(&tools, "s:1:1:a", "install_skill", input).await;
    let other = ask(&tools, "s:1:2:a", "install_skill", input).await;

    assert_eq!(
        first.as_deref(),
        Ok("The skill `pdf` 1.2.3 of the registry `hub` is installed. How it is used is in \
            skills/pdf/SKILL.md.")
    );
    assert_eq!(first, again);
    assert_eq!(
        other,
        Err("`pdf` is installed already: set `force` (`--force`) to replace it".to_owned())
    );
    assert_eq!(home.kept().len(), 1);
    assert!(home.kept()[0].1.origin.installed_at > 1_700_000_000_000);
}

#[tokio::test]
async fn a_warning_is_passed_on_and_a_refusal_says_why() {
    let suspicious = Verdict::Suspicious("it runs code".to_owned());
    let fake = Fake { verdict: suspicious, archive: zip(&[skill("pdf")]), ..Fake::new("hub") };
    let (_, tools) = world(fake, Policy::default());
    let told =
        ask(&tools, "a", "install_skill", r#"{"slug":"pdf","registry":"hub"}"#).await.unwrap();
    assert!(told.contains("Warning, tell your person: `pdf` is flagged as suspicious"), "{told}");

    let off = Policy { enabled: false, ..Policy::default() };
    let (home, tools) = world(Fake::new("hub"), off);
    for (name, input, told) in [
        ("install_skill", r#"{"slug":"pdf","registry":"hub"}"#, "may not be installed here"),
        ("install_skill", r#"{"slug":"pdf","registry":"x"}"#, "there is no registry `x`"),
        ("find_skills", r#"{"query":"x"}"#, "no registry of skills may be used here"),
    ] {
        let error = ask(&tools, "a", name, input).await.unwrap_err();
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(home.kept().len(), 0);
}

#[tokio::test]
async fn where_no_skill_may_be_installed_none_is_fetched() {
    let fake = Arc::new(Fake { archive: zip(&[skill("pdf")]), ..Fake::new("hub") });
    let registries = vec![Arc::clone(&fake) as Arc<dyn Registry>];
    let finder = Arc::new(Finder::new(Registries::new(registries).unwrap()));
    let home = Arc::new(Tree { is_strangers: true, ..Tree::default() });
    let tools = Tools::default().with_skills(Arc::clone(&home), finder, Limits::default());

    let input = r#"{"slug":"pdf","registry":"hub"}"#;
    let refused = ask(&tools, "s:1:1:a", "install_skill", input).await.unwrap_err();

    assert_eq!(refused, "not here");
    assert_eq!(fake.downloads.load(std::sync::atomic::Ordering::SeqCst), 0);
}
