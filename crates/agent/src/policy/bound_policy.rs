//! Policies bound to the catalogue, as sets of tools.

use super::{
    catalog::Catalog,
    entry::{Entry, Mode, parse_all},
    error::{Error, Warning},
    layer::Layer,
    set::ToolSet,
    settings::Policy,
};

/// Entries of a list and the tools that they cover.
#[derive(Debug, Clone)]
pub(crate) struct ToolList {
    entries: Vec<Entry>,
    pub(crate) set: ToolSet,
    pub(crate) at: String,
}

impl ToolList {
    pub(crate) fn new(catalog: &Catalog, entries: Vec<Entry>, mode: Mode, at: String) -> Self {
        let mut set = ToolSet::empty(catalog.len());
        for entry in &entries {
            set.add(&catalog.covered(entry, mode));
        }
        Self { entries, set, at }
    }

    /// Returns the first entry that covers a tool.
    pub(crate) fn entry(&self, catalog: &Catalog, at: usize, mode: Mode) -> Option<&Entry> {
        self.entries.iter().find(|entry| catalog.covered(entry, mode).contains(at))
    }
}

/// Policy bound to the catalogue.
#[derive(Debug, Clone)]
pub(crate) struct BoundPolicy {
    pub(crate) profile: Option<ToolList>,
    /// Includes `also_allow`; `None` is all.
    pub(crate) allow: Option<ToolList>,
    pub(crate) deny: ToolList,
    /// Default denials that `also_allow` lifts.
    pub(crate) lifts: ToolSet,
}

/// Binds policies to a catalogue and collects warnings.
#[derive(Debug)]
pub(crate) struct Binder<'c> {
    pub(crate) catalog: &'c Catalog,
    pub(crate) warnings: Vec<Warning>,
}

impl Binder<'_> {
    /// Binds the policy at the path `at`.
    pub(crate) fn bind(
        &mut self,
        policy: &Policy,
        at: &str,
        layer: Layer,
    ) -> Result<BoundPolicy, Error> {
        let also_at = format!("{at}.also_allow");
        let also = self.read(&policy.also_allow, &also_at, Mode::Allow)?;
        let lifts = ToolList::new(self.catalog, also.clone(), Mode::Allow, also_at).set;
        let profile = match policy.profile {
            Some(profile) => {
                let mut entries = parse_all(profile.allow(), at)?;
                entries.extend(also.clone());
                Some(self.allowing(entries, format!("{at}.profile = {}", profile.as_str())))
            }
            None => None,
        };
        let allow = match &policy.allow {
            Some(list) if !list.is_empty() => {
                let at = format!("{at}.allow");
                let mut entries = self.read(list, &at, Mode::Allow)?;
                let of_core = self.names_core(&entries);
                entries.extend(also);
                let mut covers = self.allowing(entries, at.clone());
                // A list of servers' tools restricts only those; the product's own tools stay
                // allowed (spec POL-007).
                if !of_core && !matches!(layer, Layer::Sandbox | Layer::Subagent) {
                    covers.set.add(self.catalog.core());
                    self.warnings.push(Warning::CoreKept { at });
                }
                Some(covers)
            }
            Some(_) | None => None,
        };
        let deny_at = format!("{at}.deny");
        let deny = self.read(&policy.deny, &deny_at, Mode::Deny)?;
        Ok(BoundPolicy { profile, allow, deny: self.denying(deny, deny_at), lifts })
    }

    /// Binds a complete list of tools: nothing is added to it.
    pub(crate) fn bind_exact(&mut self, list: &[String], at: &str) -> Result<ToolList, Error> {
        let entries = self.read(list, at, Mode::Allow)?;
        Ok(ToolList::new(self.catalog, entries, Mode::Allow, at.to_owned()))
    }

    pub(crate) fn bind_deny<T: AsRef<str>>(
        &mut self,
        list: &[T],
        at: &str,
    ) -> Result<ToolList, Error> {
        let entries = self.read(list, at, Mode::Deny)?;
        Ok(self.denying(entries, at.to_owned()))
    }

    fn read<T: AsRef<str>>(
        &mut self,
        list: &[T],
        at: &str,
        mode: Mode,
    ) -> Result<Vec<Entry>, Error> {
        let entries = parse_all(list, at)?;
        for entry in &entries {
            if !entry.may_be_empty() && self.catalog.covered(entry, mode).is_empty() {
                let (at, entry) = (at.to_owned(), entry.to_string());
                self.warnings.push(Warning::Unknown { at, entry });
            }
        }
        Ok(entries)
    }

    fn names_core(&self, entries: &[Entry]) -> bool {
        let is_core = |entry: &Entry| {
            entry.is_of_core()
                || !self.catalog.covered(entry, Mode::Allow).and(self.catalog.core()).is_empty()
        };
        entries.iter().any(is_core)
    }

    fn allowing(&self, entries: Vec<Entry>, at: String) -> ToolList {
        let mut covers = ToolList::new(self.catalog, entries, Mode::Allow, at);
        // Commands can change files anyway (spec POL-006).
        if let (Some(exec), Some(patch)) =
            (self.catalog.position("exec"), self.catalog.position("apply_patch"))
            && covers.set.contains(exec)
        {
            covers.set.insert(patch);
        }
        covers
    }

    fn denying(&self, entries: Vec<Entry>, at: String) -> ToolList {
        ToolList::new(self.catalog, entries, Mode::Deny, at)
    }
}
