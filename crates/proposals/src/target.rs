//! What a proposal changes: a file of the agent, or a behaviour in its layer.

use holdfast_agent::behavior::BUILT_IN;
use holdfast_directory::Directory;
use holdfast_skills::SKILLS_FOLDER;
use holdfast_types::{AgentId, ProposalKind, TenantId, TreePath};
use holdfast_workspace::{Base, ChangeAuthor, ContentHash, Edit, Workspaces};

use crate::{Decider, Error, Proposal, model::SELF_FILE};

/// Base if there is nothing yet.
const NO_BASE: &str = "none";

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CurrentText {
    /// `None` if there is no such file, or no behaviour in the agent's layer.
    pub(crate) text: Option<String>,
    /// The text in effect, which may be that of a lower layer.
    pub(crate) in_effect: String,
    pub(crate) base: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Targets {
    pub(crate) directory: Directory,
    pub(crate) workspaces: Workspaces,
}

impl Targets {
    pub(crate) async fn read(
        &self,
        (tenant, agent): (TenantId, AgentId),
        kind: ProposalKind,
        target: &str,
    ) -> Result<CurrentText, Error> {
        let Some(path) = path(kind, target)? else {
            return self.read_behavior(tenant, agent, target).await;
        };
        let file = self.workspaces.read(tenant, agent, &path, None).await?;
        let text = match &file {
            Some(file) => Some(
                file.text()
                    .map(str::to_owned)
                    .ok_or_else(|| Error::Invalid(format!("`{path}` is no text")))?,
            ),
            None => None,
        };
        let base = file.map_or_else(|| NO_BASE.to_owned(), |file| file.hash.to_string());
        Ok(CurrentText { in_effect: text.clone().unwrap_or_default(), text, base })
    }

    async fn read_behavior(
        &self,
        tenant: TenantId,
        agent: AgentId,
        name: &str,
    ) -> Result<CurrentText, Error> {
        let behaviors = self.directory.behaviors();
        let own = behaviors.find(tenant, Some(agent), name, None).await?;
        if let Some(own) = own {
            let (in_effect, base) = (own.source.clone(), own.version.to_string());
            return Ok(CurrentText { text: Some(own.source), in_effect, base });
        }
        let lower = behaviors.find(tenant, None, name, None).await?.map(|found| found.source);
        let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name);
        let in_effect = lower.or_else(|| built_in().map(|(_, source)| (*source).to_owned()));
        let base = NO_BASE.to_owned();
        Ok(CurrentText { text: None, in_effect: in_effect.unwrap_or_default(), base })
    }

    /// Makes the change, and returns its revision or version. A change that was made already is not
    /// made again.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the base is stale.
    pub(crate) async fn apply(
        &self,
        tenant: TenantId,
        proposal: &Proposal,
        by: Decider,
    ) -> Result<String, Error> {
        let change = Change {
            key: format!("proposal:{}", proposal.id),
            reason: format!("proposal {}: {}", proposal.id, one_line(&proposal.goal)),
            new: Some(&proposal.content),
            base: &proposal.base,
        };
        self.write(tenant, proposal, by, &change).await
    }

    /// Takes the change back, as a new version.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if something was changed since.
    pub(crate) async fn roll_back(
        &self,
        tenant: TenantId,
        proposal: &Proposal,
        by: Decider,
    ) -> Result<(), Error> {
        let base = match proposal.kind {
            ProposalKind::SelfFile | ProposalKind::Skill => {
                ContentHash::of(proposal.content.as_bytes()).to_string()
            }
            ProposalKind::Behavior => proposal.applied_as.clone().unwrap_or_default(),
        };
        let change = Change {
            key: format!("rollback:{}", proposal.id),
            reason: format!("proposal {} is rolled back", proposal.id),
            new: proposal.before.as_deref(),
            base: &base,
        };
        self.write(tenant, proposal, by, &change).await.map(|_version| ())
    }

    async fn write(
        &self,
        tenant: TenantId,
        proposal: &Proposal,
        by: Decider,
        change: &Change<'_>,
    ) -> Result<String, Error> {
        match path(proposal.kind, &proposal.target)? {
            Some(path) => self.write_file(tenant, proposal, by, (path, change)).await,
            None => self.write_behavior(tenant, proposal, by, change).await,
        }
    }

    async fn write_file(
        &self,
        tenant: TenantId,
        proposal: &Proposal,
        by: Decider,
        (path, change): (TreePath, &Change<'_>),
    ) -> Result<String, Error> {
        let author = ChangeAuthor::new(&by.0.to_string(), &change.reason)
            .with_key(&change.key)
            .from_outside(proposal.outside);
        let known = self.workspaces.outcome_by_key(tenant, proposal.agent, &change.key).await?;
        if let Some(known) = known {
            return Ok(known.revision.to_string());
        }
        let now = self.workspaces.read(tenant, proposal.agent, &path, None).await?;
        let found = now.as_ref().map_or_else(|| NO_BASE.to_owned(), |file| file.hash.to_string());
        if found != change.base {
            return Err(stale(proposal));
        }
        let base = now.map_or(Base::Absent, |file| Base::Hash(file.hash));
        let edit = match change.new {
            Some(text) => Edit::Put { path, content: text.as_bytes().to_vec(), base },
            None => Edit::Delete { path, base },
        };
        match self.workspaces.commit(tenant, proposal.agent, &author, vec![edit]).await {
            Ok(made) => Ok(made.revision.to_string()),
            Err(holdfast_workspace::Error::Clash { .. }) => Err(stale(proposal)),
            Err(error) => Err(error.into()),
        }
    }

    async fn write_behavior(
        &self,
        tenant: TenantId,
        proposal: &Proposal,
        by: Decider,
        change: &Change<'_>,
    ) -> Result<String, Error> {
        let behaviors = self.directory.behaviors();
        let place = (Some(proposal.agent), proposal.target.as_str());
        let now = behaviors.find(tenant, place.0, place.1, None).await?;
        let version =
            now.as_ref().map_or_else(|| NO_BASE.to_owned(), |now| now.version.to_string());
        if version != change.base {
            // A process that died had made the change already.
            let is_made = now.as_ref().map(|now| now.source.as_str()) == change.new;
            return if is_made { Ok(version) } else { Err(stale(proposal)) };
        }
        let Some(source) = change.new else {
            behaviors.delete(tenant, by.0, place).await?;
            return Ok(NO_BASE.to_owned());
        };
        let based_on = now.map_or(0, |now| now.version);
        match behaviors.put(tenant, by.0, place, Some(based_on), source).await {
            Ok(stored) => Ok(stored.version.to_string()),
            Err(holdfast_directory::Error::Conflict(_)) => Err(stale(proposal)),
            Err(error) => Err(error.into()),
        }
    }
}

/// A change to be written.
struct Change<'a> {
    key: String,
    reason: String,
    /// `None` deletes.
    new: Option<&'a str>,
    /// State on which it is based.
    base: &'a str,
}

/// Path of the file that a proposal changes; `None` if it is a behaviour.
fn path(kind: ProposalKind, target: &str) -> Result<Option<TreePath>, Error> {
    let path = match kind {
        ProposalKind::SelfFile => SELF_FILE.to_owned(),
        ProposalKind::Skill => format!("{SKILLS_FOLDER}/{target}/SKILL.md"),
        ProposalKind::Behavior => return Ok(None),
    };
    path.parse().map(Some).map_err(|error| Error::Invalid(format!("`{target}`: {error}")))
}

fn stale(proposal: &Proposal) -> Error {
    Error::Conflict(format!(
        "`{}` was changed since the proposal was made: nothing was done. The agent can read it again \
         and propose again",
        proposal.target
    ))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
