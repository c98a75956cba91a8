//! The tools that the nine layers leave for one turn.

use serde_json::Value;

use super::{
    action::FsScope,
    catalog::Catalog,
    compiled::{Compiled, Model, ModelKey},
    decision::{Decision, List, Place, Rule},
    entry::{Entry, Mode},
    explain::Explanation,
    layer::Layer,
    name::canonical,
    set::ToolSet,
    settings::ChatRule,
    sieve::{Covers, Sieve},
    subject::{SandboxMode, Subject},
};

/// Allowed tools of one turn, and the reasons for the removal of the others.
#[derive(Debug)]
pub struct View<'c> {
    pub(crate) compiled: &'c Compiled,
    pub(crate) is_subagent: bool,
    pub(crate) sandbox: SandboxMode,
    pub(crate) scopes: Vec<FsScope>,
    allowed: ToolSet,
    removals: Vec<Removal<'c>>,
}

/// Tools that one list removed.
#[derive(Debug)]
struct Removal<'c> {
    place: Place,
    by: By<'c>,
    tools: ToolSet,
}

#[derive(Debug)]
enum By<'c> {
    Deny(&'c Covers),
    Allow(&'c Covers),
    List(List),
    Depth(u8),
    Filters,
}

impl<'c> View<'c> {
    pub(crate) fn new(compiled: &'c Compiled, subject: &Subject) -> Self {
        let allowed = ToolSet::full(compiled.catalog.len());
        let mut view = Self {
            compiled,
            is_subagent: subject.is_subagent(),
            sandbox: subject.sandbox,
            scopes: subject.scopes.clone(),
            allowed,
            removals: Vec::new(),
        };
        let model = subject.model.as_ref().map(Model::new);
        view.profiles(model.as_ref());
        view.global(model.as_ref());
        view.agent(subject, model.as_ref());
        view.chat(subject);
        view.sandbox();
        view.subagent(subject);
        view.visibility(subject);
        view
    }

    /// Layers 1 and 2.
    fn profiles(&mut self, model: Option<&Model>) {
        let compiled = self.compiled;
        self.keep(Layer::Profile, compiled.profile.profile.as_ref());
        let closest = |scope: &'c super::compiled::Scope| {
            let model = model?;
            let with_profile = scope
                .providers
                .iter()
                .filter(|(key, sieve)| sieve.profile.is_some() && key.is_of(model));
            with_profile.max_by_key(|(key, _)| key.closeness()).map(|(_, sieve)| sieve)
        };
        let sieve = closest(&compiled.agent).or_else(|| closest(&compiled.tenant));
        self.keep(Layer::ProviderProfile, sieve.and_then(|sieve| sieve.profile.as_ref()));
    }

    /// Layers 3 and 4.
    fn global(&mut self, model: Option<&Model>) {
        let compiled = self.compiled;
        self.sift(Layer::Global, &compiled.tenant.own);
        self.keep(Layer::Global, compiled.tenant.only.as_ref());
        let Some(model) = model else { return };
        let of_model = |(key, _): &&'c (ModelKey, Sieve)| key.is_of(model);
        let tenants = || compiled.tenant.providers.iter().filter(of_model);
        for (key, denied) in &compiled.defaults.providers {
            if key.is_of(model) && self.allowed.meets(&denied.set) {
                let agents = compiled.agent.providers.iter().filter(of_model);
                let lifts = self.lifted(tenants().chain(agents).map(|(_, sieve)| sieve));
                self.drop_unless(Layer::GlobalProvider, denied, &lifts);
            }
        }
        for (_, sieve) in tenants() {
            self.sift(Layer::GlobalProvider, sieve);
        }
    }

    /// Layers 5 and 6.
    fn agent(&mut self, subject: &Subject, model: Option<&Model>) {
        let compiled = self.compiled;
        self.sift(Layer::Agent, &compiled.agent.own);
        self.keep(Layer::Agent, compiled.agent.only.as_ref());
        if let Some(list) = &subject.tools {
            self.narrow(Layer::Agent, List::Own, named(&compiled.catalog, list));
        }
        for list in &subject.messages {
            self.narrow(Layer::Agent, List::Message, named(&compiled.catalog, list));
        }
        if let Some(list) = &subject.toolbox {
            let mut listed = named(&compiled.catalog, list);
            // An empty toolbox is intended; any other keeps the basics (spec TOL-034).
            if !list.is_empty() {
                listed.add(&compiled.always.set);
            }
            self.narrow(Layer::Agent, List::Toolbox, listed);
        }
        let Some(model) = model else { return };
        for (key, sieve) in &compiled.agent.providers {
            if key.is_of(model) {
                self.sift(Layer::AgentProvider, sieve);
            }
        }
    }

    /// Layer 7.
    fn chat(&mut self, subject: &Subject) {
        let compiled = self.compiled;
        let rules = || {
            let all = compiled.tenant.chats.iter().chain(&compiled.agent.chats);
            all.filter(|(rule, _)| is_here(rule, subject)).map(|(_, sieve)| sieve)
        };
        if subject.is_group() {
            let lifts = self.lifted(rules());
            self.drop_unless(Layer::Chat, &compiled.defaults.groups, &lifts);
        }
        for sieve in rules() {
            self.pass(Layer::Chat, sieve);
        }
    }

    /// Layer 8.
    fn sandbox(&mut self) {
        let compiled = self.compiled;
        if self.sandbox == SandboxMode::Off {
            return;
        }
        if self.sandbox == SandboxMode::Restricted {
            let none = ToolSet::empty(compiled.catalog.len());
            self.drop_unless(Layer::Sandbox, &compiled.defaults.sandbox, &none);
        }
        self.pass(Layer::Sandbox, &compiled.tenant.sandbox);
        self.pass(Layer::Sandbox, &compiled.agent.sandbox);
    }

    /// Layer 9.
    fn subagent(&mut self, subject: &Subject) {
        let compiled = self.compiled;
        if self.is_subagent {
            let (tenant, agent) = (&compiled.tenant.subagents, &compiled.agent.subagents);
            let lifts = self.lifted([tenant, agent].into_iter());
            self.drop_unless(Layer::Subagent, &compiled.defaults.subagents, &lifts);
            self.pass(Layer::Subagent, tenant);
            self.pass(Layer::Subagent, agent);
        }
        if let Some(list) = &subject.bundle {
            self.narrow(Layer::Subagent, List::Bundle, named(&compiled.catalog, list));
        }
        let depth = match subject.is_subagent() {
            true => subject.depth.max(1),
            false => 0,
        };
        if depth >= compiled.spawn_depth {
            let mut spawn = ToolSet::empty(compiled.catalog.len());
            if let Some(at) = compiled.catalog.place("sessions_spawn") {
                spawn.insert(at);
            }
            self.remove(Place::Layer(Layer::Subagent), By::Depth(depth), &spawn);
        }
    }

    fn visibility(&mut self, subject: &Subject) {
        for filters in &self.compiled.filters {
            let mut hidden = ToolSet::empty(self.compiled.catalog.len());
            let mut shown = hidden.clone();
            for (filter, covers) in filters {
                hidden.add(&covers.set);
                if filter.holds(subject) {
                    shown.add(&covers.set);
                }
            }
            hidden.subtract(&shown);
            self.remove(Place::Visibility, By::Filters, &hidden);
        }
    }

    /// Applies a policy's profile, then its lists.
    fn pass(&mut self, layer: Layer, sieve: &'c Sieve) {
        self.keep(layer, sieve.profile.as_ref());
        self.sift(layer, sieve);
    }

    fn sift(&mut self, layer: Layer, sieve: &'c Sieve) {
        self.remove(Place::Layer(layer), By::Deny(&sieve.deny), &sieve.deny.set);
        self.keep(layer, sieve.allow.as_ref());
    }

    fn keep(&mut self, layer: Layer, covers: Option<&'c Covers>) {
        if let Some(covers) = covers {
            let rest = self.allowed.without(&covers.set);
            self.remove(Place::Layer(layer), By::Allow(covers), &rest);
        }
    }

    fn narrow(&mut self, layer: Layer, list: List, listed: ToolSet) {
        let rest = self.allowed.without(&listed);
        self.remove(Place::Layer(layer), By::List(list), &rest);
    }

    fn drop_unless(&mut self, layer: Layer, denied: &'c Covers, lifts: &ToolSet) {
        let rest = denied.set.without(lifts);
        self.remove(Place::Layer(layer), By::Deny(denied), &rest);
    }

    fn lifted(&self, sieves: impl Iterator<Item = &'c Sieve>) -> ToolSet {
        let mut lifts = ToolSet::empty(self.compiled.catalog.len());
        for sieve in sieves {
            lifts.add(&sieve.lifts);
        }
        lifts
    }

    /// The only place that changes the allowed tools. It only removes.
    fn remove(&mut self, place: Place, by: By<'c>, tools: &ToolSet) {
        if self.allowed.meets(tools) {
            let tools = self.allowed.and(tools);
            self.allowed.subtract(&tools);
            self.removals.push(Removal { place, by, tools });
        }
    }

    /// Returns the allowed tools by their registered names, sorted by canonical name.
    #[must_use]
    pub fn offered(&self) -> Vec<&'c str> {
        self.allowed.iter().map(|at| self.compiled.catalog.registered(at)).collect()
    }

    /// Decides a tool, by any of its names.
    #[must_use]
    pub fn decide(&self, tool: &str) -> Decision {
        let Some(at) = self.compiled.catalog.place(tool) else {
            return Decision::Deny { layer: Place::Catalog, rule: Rule::Unknown };
        };
        match self.removals.iter().find(|removal| removal.tools.contains(at)) {
            Some(removal) => Decision::Deny { layer: removal.place, rule: self.rule(removal, at) },
            None => self.compiled.gates.of_tool(at),
        }
    }

    /// Decides a call: the tool and its input.
    #[must_use]
    pub fn decide_call(&self, tool: &str, input: &Value) -> Decision {
        match self.decide(tool) {
            Decision::Deny { layer, rule } => Decision::Deny { layer, rule },
            decision @ (Decision::Allow | Decision::NeedApproval { .. }) => {
                self.judge(canonical(tool).as_ref(), input, decision)
            }
        }
    }

    /// Explains the decision about a tool.
    #[must_use]
    pub fn explain(&self, tool: &str) -> Explanation {
        Explanation::new(canonical(tool).as_ref(), &self.decide(tool))
    }

    /// Explains the decisions about all tools, sorted by name.
    #[must_use]
    pub fn explain_all(&self) -> Vec<Explanation> {
        let catalog = &self.compiled.catalog;
        (0..catalog.len()).map(|at| self.explain(catalog.name(at))).collect()
    }

    fn rule(&self, removal: &Removal<'c>, at: usize) -> Rule {
        match removal.by {
            By::Deny(covers) => Rule::Denied {
                entry: covers
                    .entry_text(&self.compiled.catalog, at, Mode::Deny)
                    .unwrap_or_default(),
                list: covers.at.clone(),
            },
            By::Allow(covers) => Rule::NotAllowed { list: covers.at.clone() },
            By::List(list) => Rule::NotListed(list),
            By::Depth(depth) => Rule::TooDeep { depth, limit: self.compiled.spawn_depth },
            By::Filters => Rule::Hidden,
        }
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

/// Returns the tools that a list covers. Unknown entries cover nothing.
fn named(catalog: &Catalog, list: &[String]) -> ToolSet {
    let mut set = ToolSet::empty(catalog.len());
    for text in list {
        // A plain name needs no parsing.
        let entry = match catalog.place(text) {
            Some(at) => {
                set.insert(at);
                continue;
            }
            None => Entry::read(text),
        };
        set.add(&catalog.covered(&entry, Mode::Allow));
    }
    set
}
