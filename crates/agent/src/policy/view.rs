//! The tools that the nine layers leave for one turn.

use holdfast_types::SessionKind;
use serde_json::Value;

use super::{
    bound_policy::{BoundPolicy, ToolList},
    catalog::Catalog,
    compiled_policy::{CompiledPolicy, Model, ModelKey},
    decision::{Decision, DecisionSource, Rule, TurnList},
    entry::{Entry, Mode},
    explain::Explanation,
    layer::Layer,
    name::canonical,
    sandbox_mode::SandboxMode,
    set::ToolSet,
    subject::Subject,
};

/// Allowed tools of one turn, and the reasons for the removal of the others.
#[derive(Debug)]
pub struct View<'c> {
    pub(crate) compiled: &'c CompiledPolicy,
    pub(crate) is_subagent: bool,
    sandbox: SandboxMode,
    allowed: ToolSet,
    removals: Vec<Removal<'c>>,
}

/// Tools that one list removed.
#[derive(Debug)]
struct Removal<'c> {
    place: DecisionSource,
    by: RemovalCause<'c>,
    tools: ToolSet,
}

#[derive(Debug)]
enum RemovalCause<'c> {
    Deny(&'c ToolList),
    Allow(&'c ToolList),
    List(TurnList),
    Subagent,
    Filters,
}

impl<'c> View<'c> {
    pub(crate) fn new(compiled: &'c CompiledPolicy, subject: &Subject) -> Self {
        let allowed = ToolSet::full(compiled.catalog.len());
        let mut view = Self {
            compiled,
            is_subagent: subject.is_subagent(),
            sandbox: SandboxMode::of(compiled, subject),
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
        self.keep_covered(Layer::Profile, compiled.profile.profile.as_ref());
        let closest = |scope: &'c super::compiled_policy::Scope| {
            let model = model?;
            let with_profile = scope
                .providers
                .iter()
                .filter(|(key, sieve)| sieve.profile.is_some() && key.is_of(model));
            with_profile.max_by_key(|(key, _)| key.specificity()).map(|(_, sieve)| sieve)
        };
        let sieve = closest(&compiled.agent).or_else(|| closest(&compiled.tenant));
        self.keep_covered(Layer::ProviderProfile, sieve.and_then(|sieve| sieve.profile.as_ref()));
    }

    /// Layers 3 and 4.
    fn global(&mut self, model: Option<&Model>) {
        let compiled = self.compiled;
        self.apply_lists(Layer::Global, &compiled.tenant.own);
        self.keep_covered(Layer::Global, compiled.tenant.only.as_ref());
        let Some(model) = model else { return };
        let of_model = |(key, _): &&'c (ModelKey, BoundPolicy)| key.is_of(model);
        let tenants = || compiled.tenant.providers.iter().filter(of_model);
        for (key, denied) in &compiled.defaults.providers {
            if key.is_of(model) && self.allowed.meets(&denied.set) {
                let agents = compiled.agent.providers.iter().filter(of_model);
                let lifts = self.lifted(tenants().chain(agents).map(|(_, sieve)| sieve));
                self.drop_unless(Layer::GlobalProvider, denied, &lifts);
            }
        }
        for (_, sieve) in tenants() {
            self.apply_lists(Layer::GlobalProvider, sieve);
        }
    }

    /// Layers 5 and 6.
    fn agent(&mut self, subject: &Subject, model: Option<&Model>) {
        let compiled = self.compiled;
        self.apply_lists(Layer::Agent, &compiled.agent.own);
        self.keep_covered(Layer::Agent, compiled.agent.only.as_ref());
        if let Some(list) = &subject.tools {
            self.keep_listed(Layer::Agent, TurnList::Own, named_tools(&compiled.catalog, list));
        }
        for list in &subject.messages {
            self.keep_listed(Layer::Agent, TurnList::Message, named_tools(&compiled.catalog, list));
        }
        if let Some(list) = &subject.toolbox {
            let mut listed = named_tools(&compiled.catalog, list);
            // An empty toolbox is intended; any other keeps the basics (spec TOL-034).
            if !list.is_empty() {
                listed.add(&compiled.always.set);
            }
            self.keep_listed(Layer::Agent, TurnList::Toolbox, listed);
        }
        let Some(model) = model else { return };
        for (key, sieve) in &compiled.agent.providers {
            if key.is_of(model) {
                self.apply_lists(Layer::AgentProvider, sieve);
            }
        }
    }

    /// Layer 7.
    fn chat(&mut self, subject: &Subject) {
        let compiled = self.compiled;
        let rules = || {
            let (tenants, agents) = (&compiled.tenant, &compiled.agent);
            let all = tenants.chat_rules(subject).chain(agents.chat_rules(subject));
            all.map(|(_, policy)| policy)
        };
        if subject.is_group() {
            let lifts = self.lifted(rules());
            self.drop_unless(Layer::Chat, &compiled.defaults.groups, &lifts);
        }
        for sieve in rules() {
            self.apply_policy(Layer::Chat, sieve);
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
        self.apply_policy(Layer::Sandbox, &compiled.tenant.sandbox);
        self.apply_policy(Layer::Sandbox, &compiled.agent.sandbox);
    }

    /// Layer 9.
    fn subagent(&mut self, subject: &Subject) {
        let compiled = self.compiled;
        if self.is_subagent {
            let (tenant, agent) = (&compiled.tenant.subagents, &compiled.agent.subagents);
            let lifts = self.lifted([tenant, agent].into_iter());
            self.drop_unless(Layer::Subagent, &compiled.defaults.subagents, &lifts);
            self.apply_policy(Layer::Subagent, tenant);
            self.apply_policy(Layer::Subagent, agent);
        }
        if let Some(list) = &subject.bundle {
            self.keep_listed(
                Layer::Subagent,
                TurnList::Bundle,
                named_tools(&compiled.catalog, list),
            );
        }
        if subject.kind == SessionKind::Subagent {
            let mut spawn = ToolSet::empty(compiled.catalog.len());
            if let Some(at) = compiled.catalog.position("sessions_spawn") {
                spawn.insert(at);
            }
            self.remove(DecisionSource::Layer(Layer::Subagent), RemovalCause::Subagent, &spawn);
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
            self.remove(DecisionSource::Visibility, RemovalCause::Filters, &hidden);
        }
    }

    /// Applies a policy's profile, then its lists.
    fn apply_policy(&mut self, layer: Layer, sieve: &'c BoundPolicy) {
        self.keep_covered(layer, sieve.profile.as_ref());
        self.apply_lists(layer, sieve);
    }

    fn apply_lists(&mut self, layer: Layer, sieve: &'c BoundPolicy) {
        self.remove(DecisionSource::Layer(layer), RemovalCause::Deny(&sieve.deny), &sieve.deny.set);
        self.keep_covered(layer, sieve.allow.as_ref());
    }

    fn keep_covered(&mut self, layer: Layer, covers: Option<&'c ToolList>) {
        if let Some(covers) = covers {
            let rest = self.allowed.without(&covers.set);
            self.remove(DecisionSource::Layer(layer), RemovalCause::Allow(covers), &rest);
        }
    }

    fn keep_listed(&mut self, layer: Layer, list: TurnList, listed: ToolSet) {
        let rest = self.allowed.without(&listed);
        self.remove(DecisionSource::Layer(layer), RemovalCause::List(list), &rest);
    }

    fn drop_unless(&mut self, layer: Layer, denied: &'c ToolList, lifts: &ToolSet) {
        let rest = denied.set.without(lifts);
        self.remove(DecisionSource::Layer(layer), RemovalCause::Deny(denied), &rest);
    }

    fn lifted(&self, sieves: impl Iterator<Item = &'c BoundPolicy>) -> ToolSet {
        let mut lifts = ToolSet::empty(self.compiled.catalog.len());
        for sieve in sieves {
            lifts.add(&sieve.lifts);
        }
        lifts
    }

    /// The only place that changes the allowed tools. It only removes.
    fn remove(&mut self, place: DecisionSource, by: RemovalCause<'c>, tools: &ToolSet) {
        if self.allowed.meets(tools) {
            let tools = self.allowed.and(tools);
            self.allowed.subtract(&tools);
            self.removals.push(Removal { place, by, tools });
        }
    }

    /// Isolation that the turn's commands need.
    #[must_use]
    pub const fn sandbox_mode(&self) -> SandboxMode {
        self.sandbox
    }

    /// Returns the allowed tools by their registered names, sorted by canonical name.
    #[must_use]
    pub fn offered(&self) -> Vec<&'c str> {
        self.allowed.iter().map(|at| self.compiled.catalog.registered(at)).collect()
    }

    /// Decides a tool, by any of its names.
    #[must_use]
    pub fn decide(&self, tool: &str) -> Decision {
        let Some(at) = self.compiled.catalog.position(tool) else {
            return Decision::Deny { layer: DecisionSource::Catalog, rule: Rule::Unknown };
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
                self.decide_input(canonical(tool).as_ref(), input, decision)
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
            RemovalCause::Deny(covers) => Rule::Denied {
                entry: covers
                    .entry_text(&self.compiled.catalog, at, Mode::Deny)
                    .unwrap_or_default(),
                list: covers.at.clone(),
            },
            RemovalCause::Allow(covers) => Rule::NotAllowed { list: covers.at.clone() },
            RemovalCause::List(list) => Rule::NotListed(list),
            RemovalCause::Subagent => Rule::SubagentSpawns,
            RemovalCause::Filters => Rule::Hidden,
        }
    }
}

/// Returns the tools that a list covers. Unknown entries cover nothing.
fn named_tools(catalog: &Catalog, list: &[String]) -> ToolSet {
    let mut set = ToolSet::empty(catalog.len());
    for text in list {
        // A plain name needs no parsing.
        let entry = match catalog.position(text) {
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
