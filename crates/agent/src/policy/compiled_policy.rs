//! Compiled policy of one agent: built when settings or tools change, used in every turn.

use std::sync::Arc;

use holdfast_types::ModelId;

use super::{
    action::Actions,
    approval::BoundApprovals,
    bound_policy::{Binder, BoundPolicy, ToolList},
    catalog::Catalog,
    defaults::Defaults,
    entry::{Entry, Mode},
    error::{Error, Warning, short},
    exec::ExecSettings,
    glob,
    layer::Layer,
    people::NamedPeople,
    sandbox_mode::SandboxMode,
    settings::{ChatRule, Policy, Settings},
    subject::Subject,
    view::View,
    visibility::BoundFilter,
};

/// Maximum number of providers, chats or filters.
pub(crate) const MAX_LIST_LEN: usize = 256;

/// Tools that a behaviour's toolbox always includes: commands, files and the basics (spec TOL-034).
const BASIC_TOOLS: [&str; 8] = [
    "group:fs",
    "group:runtime",
    "group:sessions",
    "group:memory",
    "group:messaging",
    "todo",
    "worklog",
    "event",
];

/// Tool policy of one agent, bound to the catalogue.
#[derive(Debug)]
pub struct CompiledPolicy {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) profile: BoundPolicy,
    pub(crate) tenant: Scope,
    pub(crate) agent: Scope,
    pub(crate) defaults: BoundDefaults,
    pub(crate) always: ToolList,
    /// Visibility filters of the tenant and of the agent; both must show a tool.
    pub(crate) filters: [Vec<(BoundFilter, ToolList)>; 2],
    pub(crate) gates: BoundApprovals,
    pub(crate) exec: ExecSettings,
    pub(crate) actions: Actions,
    pub(crate) people: NamedPeople,
    warnings: Vec<Warning>,
}

/// Settings of a tenant or an agent, bound to the catalogue.
#[derive(Debug)]
pub(crate) struct Scope {
    pub(crate) own: BoundPolicy,
    pub(crate) only: Option<ToolList>,
    pub(crate) providers: Vec<(ModelKey, BoundPolicy)>,
    chats: Vec<(ChatRule, BoundPolicy)>,
    pub(crate) sandbox_mode: Option<SandboxMode>,
    pub(crate) sandbox: BoundPolicy,
    pub(crate) subagents: BoundPolicy,
}

impl Scope {
    /// Returns the chat rules that apply to a conversation.
    pub(crate) fn chat_rules<'s>(
        &'s self,
        subject: &Subject,
    ) -> impl Iterator<Item = &'s (ChatRule, BoundPolicy)> {
        self.chats.iter().filter(|(rule, _)| is_here(rule, subject))
    }
}

#[derive(Debug)]
pub(crate) struct BoundDefaults {
    pub(crate) providers: Vec<(ModelKey, ToolList)>,
    pub(crate) groups: ToolList,
    pub(crate) sandbox: ToolList,
    pub(crate) subagents: ToolList,
}

/// Provider, or some of its models.
#[derive(Debug)]
pub(crate) struct ModelKey {
    provider: String,
    model: Option<String>,
}

/// Model of a turn, in lower case.
#[derive(Debug)]
pub(crate) struct Model {
    provider: String,
    id: String,
}

impl Model {
    pub(crate) fn new(model: &ModelId) -> Self {
        Self { provider: model.provider().to_lowercase(), id: model.id().to_lowercase() }
    }
}

impl ModelKey {
    fn new(key: &str) -> Self {
        let key = key.trim().to_lowercase();
        match key.split_once(['/', ':']) {
            Some((provider, model)) => {
                Self { provider: provider.to_owned(), model: Some(model.to_owned()) }
            }
            None => Self { provider: key, model: None },
        }
    }

    pub(crate) fn is_of(&self, model: &Model) -> bool {
        glob::matches(&self.provider, &model.provider)
            && self.model.as_ref().is_none_or(|key| glob::matches(key, &model.id))
    }

    /// Specificity of the key: the profile of the most specific key applies.
    pub(crate) fn specificity(&self) -> (bool, usize) {
        let letters = |text: &str| text.chars().filter(|c| !matches!(c, '*' | '?')).count();
        let model = self.model.as_deref();
        (model.is_some(), letters(&self.provider) + model.map_or(0, letters))
    }
}

impl CompiledPolicy {
    /// Binds settings to the tools of a catalogue.
    ///
    /// # Errors
    ///
    /// If an entry can never name a tool, a list is too long, or a time window or a scope is
    /// invalid.
    pub fn new(
        catalog: Arc<Catalog>,
        defaults: &Defaults,
        tenant: &Settings,
        agent: &Settings,
    ) -> Result<Self, Error> {
        let mut binder = Binder { catalog: &catalog, warnings: Vec::new() };
        let profile = profile(&mut binder, tenant, agent)?;
        let tenant_scope = scope(&mut binder, tenant, "tools", Layer::Global)?;
        let agent_scope = scope(&mut binder, agent, "agent.tools", Layer::Agent)?;
        let filters =
            [filters(&mut binder, tenant, "tools")?, filters(&mut binder, agent, "agent.tools")?];
        let bound = BoundDefaults::new(&mut binder, defaults)?;
        let always = binder.bind_exact(&BASIC_TOOLS.map(str::to_owned), "meta tools")?;
        let gates = BoundApprovals::new(&mut binder, &tenant.approvals, &agent.approvals)?;
        // Warnings about the product's own lists are not for the tenant.
        let is_theirs = |warning: &Warning| match warning {
            Warning::Unknown { at, .. } | Warning::CoreKept { at } => {
                at.starts_with("tools") || at.starts_with("agent.tools")
            }
            Warning::Unnameable { .. } | Warning::Clash { .. } => true,
        };
        let mut warnings = binder.warnings;
        warnings.retain(is_theirs);
        Ok(Self {
            profile,
            tenant: tenant_scope,
            agent: agent_scope,
            defaults: bound,
            always,
            filters,
            gates,
            exec: tenant.exec.with(&agent.exec)?,
            actions: tenant.actions.with(&agent.actions)?,
            people: NamedPeople::new(tenant, agent)?,
            warnings,
            catalog,
        })
    }

    /// Returns warnings about settings that are valid but probably mistakes.
    #[must_use]
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Applies the policy to one turn.
    #[must_use]
    pub fn view<'c>(&'c self, subject: &Subject) -> View<'c> {
        View::new(self, subject)
    }
}

/// Whether a rule applies to the conversation.
fn is_here(rule: &ChatRule, subject: &Subject) -> bool {
    let channel = rule.channel.as_ref().is_none_or(|wanted| {
        subject.channel.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(wanted))
    });
    let chat = rule.chat.as_ref().is_none_or(|wanted| subject.chat.as_ref() == Some(wanted));
    channel && chat && rule.kind.is_none_or(|kind| kind == subject.kind)
}

/// Layer 1: the agent's profile, else the tenant's, with the tools that either allows besides.
fn profile(
    binder: &mut Binder<'_>,
    tenant: &Settings,
    agent: &Settings,
) -> Result<BoundPolicy, Error> {
    let (profile, also_allow, at) = match agent.profile {
        Some(profile) => (Some(profile), agent.also_allow.clone(), "agent.tools"),
        None => {
            let both = [tenant.also_allow.as_slice(), agent.also_allow.as_slice()].concat();
            (tenant.profile, both, "tools")
        }
    };
    let policy = Policy { profile, also_allow, ..Policy::default() };
    // The lists are bound again in their own layer, which repeats the warnings.
    let warned = binder.warnings.len();
    let sieve = binder.bind(&policy, at, Layer::Profile)?;
    binder.warnings.truncate(warned);
    Ok(sieve)
}

fn filters(
    binder: &mut Binder<'_>,
    settings: &Settings,
    root: &str,
) -> Result<Vec<(BoundFilter, ToolList)>, Error> {
    check_length(settings.visibility.len(), root, "visibility")?;
    let mut filters = Vec::with_capacity(settings.visibility.len());
    for (at, filter) in settings.visibility.iter().enumerate() {
        let at = format!("{root}.visibility[{at}]");
        filters.push((BoundFilter::new(filter, &at)?, binder.bind_deny(&filter.tools, &at)?));
    }
    Ok(filters)
}

fn scope(
    binder: &mut Binder<'_>,
    settings: &Settings,
    root: &str,
    layer: Layer,
) -> Result<Scope, Error> {
    check_length(settings.by_provider.len(), root, "by_provider")?;
    check_length(settings.chats.len(), root, "chats")?;
    let by_layer = match layer {
        Layer::Agent => Layer::AgentProvider,
        Layer::Profile
        | Layer::ProviderProfile
        | Layer::Global
        | Layer::GlobalProvider
        | Layer::AgentProvider
        | Layer::Chat
        | Layer::Sandbox
        | Layer::Subagent => Layer::GlobalProvider,
    };
    let mut providers = Vec::new();
    for (key, policy) in &settings.by_provider {
        // A key has the form of an entry.
        Entry::parse(key, &format!("{root}.by_provider"))?;
        let at = format!("{root}.by_provider[{}]", short(key));
        providers.push((ModelKey::new(key), binder.bind(policy, &at, by_layer)?));
    }
    let mut chats = Vec::new();
    for (at, rule) in settings.chats.iter().enumerate() {
        let at = format!("{root}.chats[{at}].policy");
        chats.push((rule.clone(), binder.bind(&rule.policy, &at, Layer::Chat)?));
    }
    let only = match &settings.tools {
        Some(list) => Some(binder.bind_exact(list, &format!("{root}.tools"))?),
        None => None,
    };
    let mut everywhere = settings.everywhere();
    everywhere.profile = None;
    let sandbox = format!("{root}.sandbox");
    let subagents = format!("{root}.subagents");
    Ok(Scope {
        own: binder.bind(&everywhere, root, layer)?,
        only,
        providers,
        chats,
        sandbox_mode: settings.sandbox_mode,
        sandbox: binder.bind(&settings.sandbox, &sandbox, Layer::Sandbox)?,
        subagents: binder.bind(&settings.subagents, &subagents, Layer::Subagent)?,
    })
}

fn check_length(got: usize, root: &str, field: &str) -> Result<(), Error> {
    if got > MAX_LIST_LEN {
        return Err(Error::TooMany { at: format!("{root}.{field}"), got, limit: MAX_LIST_LEN });
    }
    Ok(())
}

impl BoundDefaults {
    fn new(binder: &mut Binder<'_>, defaults: &Defaults) -> Result<Self, Error> {
        let mut providers = Vec::new();
        for denial in defaults.providers {
            let at = format!("the default list for `{}`", denial.key);
            providers.push((ModelKey::new(denial.key), binder.bind_deny(denial.deny, &at)?));
        }
        Ok(Self {
            providers,
            groups: binder.bind_deny(defaults.groups, "the default list for groups")?,
            sandbox: binder.bind_deny(defaults.sandbox, "the default list for restricted mode")?,
            subagents: binder.bind_deny(defaults.subagents, "the default list for subagents")?,
        })
    }
}

impl ToolList {
    pub(crate) fn entry_text(&self, catalog: &Catalog, at: usize, mode: Mode) -> Option<String> {
        self.entry(catalog, at, mode).map(ToString::to_string)
    }
}
