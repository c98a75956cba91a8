//! The service `Skills`: skills of agents and tenants, and their registries.

use std::sync::Arc;

use holdfast_directory::SkillVariable;
use holdfast_egress::Guard;
use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1::{
    self as pb, FindSkillsRequest, FindSkillsResponse, GetSkillPolicyRequest,
    GetSkillPolicyResponse, GetSkillRequest, GetSkillResponse, InstallSkillRequest,
    InstallSkillResponse, ListSkillChangesRequest, ListSkillChangesResponse, ListSkillEnvRequest,
    ListSkillEnvResponse, ListSkillsRequest, ListSkillsResponse, PutSkillEnvRequest,
    PutSkillEnvResponse, PutSkillPolicyRequest, PutSkillPolicyResponse, PutSkillRequest,
    PutSkillResponse, RemoveSkillEnvRequest, RemoveSkillEnvResponse, RemoveSkillRequest,
    RemoveSkillResponse, skills_server::Skills as Service,
};
use holdfast_skills::{
    DEFAULT_SEARCH_LIMIT, Download, Force, InstallOrder, MAX_SEARCH_LIMIT, Manifest, Policy,
    Registry, Skill, SkillEnvironment, SkillHit, SkillName, UnjudgedPolicy, UrlRegistry,
};
use holdfast_types::{AgentId, TenantId};
use holdfast_workspace::{ChangeAuthor, SkillChangeRecord, Workspaces};
use tonic::{Request, Response, Status};
use uuid::Uuid;

use super::{AgentNames, State, actor, invalid, non_empty, page_size, required, timestamp};
use crate::{Error, audit};

const DEFAULT_PAGE_SIZE: u32 = 50;
const MAX_PAGE_SIZE: u32 = 200;

/// Implements `holdfast.gateway.v1.Skills`.
#[derive(Debug)]
pub struct Skills(pub State);

impl Skills {
    /// Id of the named agent; `None` for an empty name, which means the tenant itself.
    async fn agent(&self, tenant: TenantId, named: &str) -> Result<Option<AgentId>, Error> {
        if named.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.0.directory.agents().get(tenant, named).await?.id))
    }

    /// Known environment of skills: the variables that are set. Programs are only known to the
    /// runners.
    async fn environment(&self, tenant: TenantId) -> Result<SkillEnvironment, Error> {
        let mut here = SkillEnvironment::default();
        for variable in self.0.directory.skill_env().list(tenant).await? {
            here.env.entry(variable.skill).or_default().insert(variable.name);
        }
        Ok(here)
    }

    /// Workspace of the named agent; without a name, the one that the tenant shares.
    async fn workspace_id(&self, tenant: TenantId, named: &str) -> Result<AgentId, Error> {
        let agent = self.agent(tenant, named).await?;
        Ok(agent.unwrap_or_else(|| Workspaces::shared_tree(tenant)))
    }

    /// Finds a skill by name, in any scope that the agent or the tenant has.
    async fn skill(
        &self,
        tenant: TenantId,
        agent: Option<AgentId>,
        name: &str,
    ) -> Result<(Skill, SkillEnvironment), Error> {
        let name: SkillName = name.parse().map_err(holdfast_skills::Error::from)?;
        let here = self.environment(tenant).await?;
        let skill_set = self.0.library.load_current_skills(tenant, agent, &here).await?;
        let found = skill_set.find(name.as_str()).cloned();
        Ok((found.ok_or(holdfast_skills::Error::NoSkill { name })?, here))
    }
}

#[tonic::async_trait]
impl Service for Skills {
    async fn list_skills(
        &self,
        request: Request<ListSkillsRequest>,
    ) -> Result<Response<ListSkillsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let here = self.environment(caller.tenant).await?;
        let skill_set = self.0.library.load_current_skills(caller.tenant, agent, &here).await;

        let skill_set = skill_set.map_err(Error::from)?;
        let skipped = skill_set.unused_files().iter().map(|skipped| pb::SkippedSkill {
            scope: skipped.scope.to_string(),
            file: skipped.file.clone(),
            why: skipped.to_string(),
        });
        let skipped = skipped.collect();
        let skills = skill_set.skills().map(|skill| skill_of(skill, &here)).collect();
        Ok(Response::new(ListSkillsResponse { skills, skipped }))
    }

    async fn get_skill(
        &self,
        request: Request<GetSkillRequest>,
    ) -> Result<Response<GetSkillResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let agent = self.agent(caller.tenant, &request.agent).await?;

        let (skill, here) = self.skill(caller.tenant, agent, &request.name).await?;
        let tree = agent.unwrap_or_else(|| Workspaces::shared_tree(caller.tenant));
        let (text, files) =
            self.0.library.skill_text(caller.tenant, tree, &skill).await.map_err(Error::from)?;

        Ok(Response::new(GetSkillResponse {
            skill: Some(skill_of(&skill, &here)),
            text,
            files: files.into_iter().map(|file| file.path.to_string()).collect(),
        }))
    }

    async fn put_skill(
        &self,
        request: Request<PutSkillRequest>,
    ) -> Result<Response<PutSkillResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let PutSkillRequest { agent, archive, files, request_id } = request;
        let tree = self.workspace_id(caller.tenant, &agent).await?;
        let download = match (archive.is_empty(), files.is_empty()) {
            (false, true) => Download::Zip(archive),
            (true, false) => {
                Download::Files(files.into_iter().map(|file| (file.path, file.content)).collect())
            }
            (true, true) => return Err(Error::MissingField("files").into()),
            (false, false) => {
                let why = "a skill comes as an `archive` or as `files`, and not as both".to_owned();
                return Err(invalid(why).into());
            }
        };
        let by = change_author(&caller, "a skill was put", request_id);

        let put = self.0.library.put_skill(caller.tenant, tree, &by, download).await;

        let Manifest { name, .. } = put.map_err(Error::from)?;
        Ok(Response::new(PutSkillResponse { name: name.to_string() }))
    }

    async fn remove_skill(
        &self,
        request: Request<RemoveSkillRequest>,
    ) -> Result<Response<RemoveSkillResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let tree = self.workspace_id(caller.tenant, &request.agent).await?;
        let by = change_author(&caller, "a skill was removed", request.request_id);

        let removed = self.0.library.remove_skill(caller.tenant, tree, &by, &request.name).await;

        removed.map_err(Error::from)?;
        Ok(Response::new(RemoveSkillResponse {}))
    }

    async fn find_skills(
        &self,
        request: Request<FindSkillsRequest>,
    ) -> Result<Response<FindSkillsResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let usual = u32::try_from(DEFAULT_SEARCH_LIMIT).unwrap_or(DEFAULT_PAGE_SIZE);
        let most = u32::try_from(MAX_SEARCH_LIMIT).unwrap_or(MAX_PAGE_SIZE);
        let most =
            usize::try_from(page_size(request.limit, usual, most)?).unwrap_or(DEFAULT_SEARCH_LIMIT);
        let (library, tenant) = (&self.0.library, caller.tenant);
        let policy = library.policy(tenant).await.map_err(Error::from)?;

        let found = library.finder().find(tenant, &policy, &request.query, most).await;

        let found = found.map_err(Error::from)?;
        Ok(Response::new(FindSkillsResponse {
            skills: found.hits.into_iter().map(hit_of).collect(),
            failed: found.failed.into_iter().collect(),
        }))
    }

    async fn install_skill(
        &self,
        request: Request<InstallSkillRequest>,
    ) -> Result<Response<InstallSkillResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.agent);
        let tree = self.workspace_id(caller.tenant, &request.agent).await?;
        let library = &self.0.library;
        let url_registry: Arc<dyn Registry>;
        let registry = match request.url.as_str() {
            "" => library.finder().registries().get(&request.registry).map_err(Error::from)?,
            url => {
                let slug = request.slug.parse().map_err(holdfast_skills::Error::from);
                let slug: SkillName = slug.map_err(Error::from)?;
                let guard = Guard::with_system_resolver([]).map_err(holdfast_skills::Error::Broken);
                let guard = guard.map_err(Error::from)?;
                url_registry = Arc::new(UrlRegistry::new(slug, url, guard).map_err(Error::from)?);
                &url_registry
            }
        };
        let by = change_author(&caller, "a skill was installed", request.request_id);
        let key = by.key.clone().unwrap_or_default();
        let made = library.trees().skill_change_by_key(caller.tenant, tree, &key).await;
        if let Some(made) = made.map_err(Error::from)? {
            return Ok(Response::new(installed_of(made)));
        }
        let order = InstallOrder {
            registry,
            slug: &request.slug,
            version: Some(request.version.as_str()).filter(|version| !version.is_empty()),
            force: if request.force { Force::Yes } else { Force::No },
        };

        let installed = library.install(caller.tenant, tree, &by, &order).await;

        let installed = installed.map_err(Error::from)?;
        Ok(Response::new(InstallSkillResponse {
            name: installed.origin.slug.to_string(),
            version: installed.origin.installed_version,
            registry: installed.origin.registry,
            sha256: installed.sha256,
            warning: installed.warning.unwrap_or_default(),
        }))
    }

    async fn list_skill_changes(
        &self,
        request: Request<ListSkillChangesRequest>,
    ) -> Result<Response<ListSkillChangesResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let most = u32::try_from(page_size(request.limit, DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)?)
            .unwrap_or(DEFAULT_PAGE_SIZE);
        let before = match request.before.as_str() {
            "" => None,
            id => Some(Uuid::parse_str(id).map_err(|_| {
                invalid("`before` is no id of a change: take one of the list's".to_owned())
            })?),
        };

        let changes = self.0.workspaces.skill_changes(caller.tenant, before, most).await;

        let names = self.0.agent_names(caller.tenant).await?;
        let changes = changes.map_err(Error::from)?.into_iter();
        let changes = changes.map(|change| change_of(change, caller.tenant, &names)).collect();
        Ok(Response::new(ListSkillChangesResponse { changes }))
    }

    async fn get_skill_policy(
        &self,
        request: Request<GetSkillPolicyRequest>,
    ) -> Result<Response<GetSkillPolicyResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let policy = self.0.library.policy(caller.tenant).await.map_err(Error::from)?;

        let policy = Some(pb::SkillPolicy {
            disabled: !policy.enabled,
            registries_given: policy.registries.is_some(),
            registries: policy.registries.unwrap_or_default(),
            allow_unjudged: policy.unjudged == UnjudgedPolicy::AllowedByAdmin,
        });
        Ok(Response::new(GetSkillPolicyResponse { policy }))
    }

    async fn put_skill_policy(
        &self,
        request: Request<PutSkillPolicyRequest>,
    ) -> Result<Response<PutSkillPolicyResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        let given = required("policy", request.policy)?;
        let is_listed = given.registries_given || !given.registries.is_empty();
        let policy = Policy {
            enabled: !given.disabled,
            registries: is_listed.then_some(given.registries),
            unjudged: match given.allow_unjudged {
                true => UnjudgedPolicy::AllowedByAdmin,
                false => UnjudgedPolicy::Refused,
            },
        };

        let put = self.0.library.set_policy(caller.tenant, &caller.id(), &policy).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutSkillPolicyResponse {}))
    }

    async fn list_skill_env(
        &self,
        request: Request<ListSkillEnvRequest>,
    ) -> Result<Response<ListSkillEnvResponse>, Status> {
        let (caller, _) = holdfast_grpc::caller(request)?;

        let variables =
            self.0.directory.skill_env().list(caller.tenant).await.map_err(Error::from)?;

        let variables = variables.into_iter().map(variable_of).collect();
        Ok(Response::new(ListSkillEnvResponse { variables }))
    }

    async fn put_skill_env(
        &self,
        request: Request<PutSkillEnvRequest>,
    ) -> Result<Response<PutSkillEnvResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let PutSkillEnvRequest { skill, name, value } = request;
        let (directory, by, value) = (&self.0.directory, actor(&caller), value.into());

        let put = directory.skill_env().put(caller.tenant, by, (&skill, &name), &value).await;

        put.map_err(Error::from)?;
        Ok(Response::new(PutSkillEnvResponse {}))
    }

    async fn remove_skill_env(
        &self,
        request: Request<RemoveSkillEnvRequest>,
    ) -> Result<Response<RemoveSkillEnvResponse>, Status> {
        let (caller, request) = holdfast_grpc::caller(request)?;
        audit::set_target(&request.name);
        let (directory, by) = (&self.0.directory, actor(&caller));
        let which = (request.skill.as_str(), request.name.as_str());

        let removed = directory.skill_env().delete(caller.tenant, by, which).await;

        removed.map_err(Error::from)?;
        Ok(Response::new(RemoveSkillEnvResponse {}))
    }
}

/// Author of a change. Without a request id each request is a new one.
fn change_author(caller: &Caller, reason: &str, request_id: String) -> ChangeAuthor {
    let key = non_empty(request_id).unwrap_or_else(|| Uuid::now_v7().to_string());
    ChangeAuthor::new(&caller.id(), reason).with_key(&key)
}

fn skill_of(skill: &Skill, here: &SkillEnvironment) -> pb::Skill {
    let manifest = &skill.manifest;
    let needs = &manifest.requires;
    let mut told = Vec::new();
    for (kind, names) in
        [("os", &needs.os), ("bin", &needs.bins), ("env", &needs.env), ("config", &needs.config)]
    {
        told.extend(names.iter().map(|name| format!("{kind}:{name}")));
    }
    if !needs.any_bins.is_empty() {
        told.push(format!("bin:{}", needs.any_bins.join("|")));
    }
    pb::Skill {
        name: manifest.name.to_string(),
        description: manifest.description.clone(),
        scope: skill.scope.to_string(),
        location: skill.location.clone(),
        version: manifest.version.clone().unwrap_or_default(),
        tags: manifest.tags.clone(),
        user_invocable: manifest.user_invocable,
        model_invocable: manifest.model_invocable,
        needs: told,
        lacks: manifest.missing_env(here).iter().map(ToString::to_string).collect(),
    }
}

fn variable_of(variable: SkillVariable) -> pb::SkillVariable {
    pb::SkillVariable {
        skill: variable.skill,
        name: variable.name,
        updated_at: Some(timestamp(variable.updated_at)),
    }
}

fn hit_of(hit: SkillHit) -> pb::FoundSkill {
    pb::FoundSkill {
        slug: hit.slug.to_string(),
        registry: hit.registry,
        title: hit.title,
        summary: hit.summary,
        version: hit.version.unwrap_or_default(),
        score: hit.score,
    }
}

fn installed_of(made: SkillChangeRecord) -> InstallSkillResponse {
    let change = made.change;
    InstallSkillResponse {
        name: change.skill,
        version: change.version,
        registry: change.registry,
        sha256: change.sha256,
        warning: change.warning,
    }
}

fn change_of(made: SkillChangeRecord, tenant: TenantId, names: &AgentNames) -> pb::SkillChange {
    let is_shared = made.tree == Workspaces::shared_tree(tenant);
    pb::SkillChange {
        id: made.id.to_string(),
        action: made.change.action.as_str().to_owned(),
        skill: made.change.skill,
        agent: if is_shared { String::new() } else { names.of(made.tree) },
        actor: made.actor,
        registry: made.change.registry,
        version: made.change.version,
        sha256: made.change.sha256,
        warning: made.change.warning,
        revision: made.revision,
        at: Some(timestamp(made.at)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_skill_needs_is_told_in_words() {
        let text = "---\nname: a\ndescription: b\nmetadata: { openclaw: { os: [linux], requires: \
                    { bins: [curl], anyBins: [jq, gojq], env: [KEY] } } }\n---\n";
        let manifest = Manifest::read("f", text.as_bytes()).unwrap();
        let skill = Skill {
            location: "skills/a/SKILL.md".to_owned(),
            scope: holdfast_skills::Scope::Tenant,
            unmet: Vec::new(),
            manifest,
        };

        let told = skill_of(&skill, &SkillEnvironment::default());
        let env = [("a".to_owned(), ["KEY".to_owned()].into())].into();
        let set = skill_of(&skill, &SkillEnvironment { env, ..SkillEnvironment::default() });

        assert!(told.lacks[0].contains("holdfast skills env set a KEY"), "{:?}", told.lacks);
        assert_eq!((told.lacks.len(), set.lacks.len()), (1, 0));
        assert_eq!(told.needs, ["os:linux", "bin:curl", "env:KEY", "bin:jq|gojq"]);
        assert_eq!((told.scope.as_str(), told.user_invocable), ("tenant", true));
    }
}
