//! Behaviours of an agent, compiled and by name.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use holdfast_types::BehaviorName;

use super::{
    builtin::{BUILT_IN, DEFAULT_BEHAVIOR},
    definition::Behavior,
};

/// The built-in behaviours. Tests check that each compiles.
static COMPILED: LazyLock<BTreeMap<String, Arc<Behavior>>> = LazyLock::new(|| {
    let compile = |(name, source): &(&str, &str)| {
        let behavior = Behavior::parse(source, name).ok()?;
        Some((behavior.name.clone(), Arc::new(behavior)))
    };
    BUILT_IN.iter().filter_map(compile).collect()
});

/// Behaviours of an agent by name: the built-in ones, replaced by those that are added (spec
/// BHV-003).
#[derive(Debug, Clone)]
pub struct BehaviorSet {
    behaviors: BTreeMap<String, Arc<Behavior>>,
    default: String,
}

impl BehaviorSet {
    /// Creates a set of the built-in behaviours; `default` is the behaviour that a conversation
    /// starts with.
    #[must_use]
    pub fn built_in(default: Option<&str>) -> Self {
        let default = default.unwrap_or(DEFAULT_BEHAVIOR).to_owned();
        Self { behaviors: COMPILED.clone(), default }
    }

    /// Adds a behaviour, which replaces one of its name.
    pub fn add(&mut self, behavior: Arc<Behavior>) {
        self.behaviors.insert(behavior.name.clone(), behavior);
    }

    /// Returns a behaviour by its name without parameters, then by that in lower case (spec
    /// STM-013).
    #[must_use]
    pub fn find(&self, name: &BehaviorName) -> Option<&Behavior> {
        let found = self.behaviors.get(name.base());
        found.or_else(|| self.behaviors.get(&name.base().to_ascii_lowercase())).map(Arc::as_ref)
    }

    /// Name of the behaviour that a conversation starts with; the built-in one if the agent's does
    /// not exist.
    #[must_use]
    pub fn default_name(&self) -> &str {
        if self.behaviors.contains_key(&self.default) { &self.default } else { DEFAULT_BEHAVIOR }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> BehaviorName {
        text.parse().unwrap()
    }

    #[test]
    fn all_built_in_behaviors_compile_under_their_names_and_lead_to_existing_ones() {
        let set = BehaviorSet::built_in(None);
        for (own, source) in BUILT_IN {
            let behavior =
                Behavior::parse(source, "unnamed").unwrap_or_else(|error| panic!("{own}: {error}"));
            assert_eq!(behavior.name, own);
            assert!(set.find(&name(own)).is_some());
            if let Some(fallback) = &behavior.fallback {
                assert!(set.find(&name(fallback)).is_some(), "{own}: {fallback}");
            }
        }
        assert!(set.find(&name(set.default_name())).is_some());
    }

    #[test]
    fn a_behavior_is_found_with_parameters_and_in_any_case() {
        let set = BehaviorSet::built_in(None);

        for text in ["do", "DO", "DO:todo=T001", "Do"] {
            assert_eq!(set.find(&name(text)).unwrap().name, "do", "{text}");
        }
        assert!(set.find(&name("dance")).is_none());
    }

    #[test]
    fn an_added_behavior_replaces_the_one_of_its_name() {
        let mut set = BehaviorSet::built_in(Some("look"));
        assert_eq!(set.default_name(), DEFAULT_BEHAVIOR, "there is no `look` yet");

        let look = Behavior::parse("process_rule: x", "look").unwrap();
        let plan = Behavior::parse("process_rule: x\nstep_limit: 2", "plan").unwrap();
        set.add(Arc::new(look));
        set.add(Arc::new(plan));

        assert_eq!(set.default_name(), "look");
        assert_eq!(set.find(&name("PLAN")).unwrap().step_limit, 2);
    }
}
