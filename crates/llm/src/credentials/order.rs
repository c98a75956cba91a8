//! Order in which keys are tried.
//!
//! Usable keys come first, the least recently used before the others; then unusable ones, the one
//! that is usable soonest first. An explicit order selects the keys; with `respect_explicit` its
//! order is kept too.

use std::collections::BTreeMap;

use super::{Profile, Stats};

#[derive(Debug, Clone, Copy, Default)]
pub struct Order<'a> {
    /// Ids of the keys that take part; `None` is all of the provider's.
    pub explicit: Option<&'a [String]>,
    /// Whether usable keys keep the explicit order.
    pub respect_explicit: bool,
    /// Key that comes first, if it takes part.
    pub preferred: Option<&'a str>,
}

/// Returns the ids of a provider's keys in the order to try them. Invalid keys are left out.
#[must_use]
pub fn order<'p>(
    provider: &str,
    profiles: &'p [Profile],
    stats: &BTreeMap<String, Stats>,
    how: Order<'_>,
    now: i64,
) -> Vec<&'p str> {
    let fits = |profile: &&Profile| profile.is_for(provider) && profile.is_valid(now);
    let base: Vec<&Profile> = match how.explicit {
        Some(ids) => {
            let mut once: Vec<&Profile> = Vec::new();
            for id in ids {
                let found = profiles.iter().filter(fits).find(|profile| profile.id == *id);
                if let Some(found) = found.filter(|found| once.iter().all(|p| p.id != found.id)) {
                    once.push(found);
                }
            }
            once
        }
        None => profiles.iter().filter(fits).collect(),
    };
    let until = |id: &str| stats.get(id).and_then(|stats| stats.unusable_until(now));
    let (mut usable, mut cooling): (Vec<&str>, Vec<&str>) =
        base.iter().map(|profile| profile.id.as_str()).partition(|id| until(id).is_none());
    if !(how.respect_explicit && how.explicit.is_some()) {
        // `None` sorts first: keys that were never used.
        usable.sort_by_key(|id| stats.get(*id).and_then(|stats| stats.last_used));
    }
    cooling.sort_by_key(|id| until(id));
    let mut all = usable;
    all.extend(cooling);
    if let Some(at) = all.iter().position(|id| how.preferred == Some(*id)) {
        let preferred = all.remove(at);
        all.insert(0, preferred);
    }
    all
}

/// Returns the key for a session's next request: the session's previous key while it is usable, so
/// that the provider's cache stays useful, else the first usable one. `None` if no key is usable.
#[must_use]
pub fn sticky<'p>(
    ordered: &[&'p str],
    before: Option<&str>,
    stats: &BTreeMap<String, Stats>,
    now: i64,
) -> Option<&'p str> {
    let can = |id: &&&str| stats.get(**id).is_none_or(|stats| stats.unusable_until(now).is_none());
    let usable = || ordered.iter().filter(can);
    usable().find(|id| before == Some(**id)).or_else(|| usable().next()).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::Credential;

    const NOW: i64 = 1_000;

    fn profile(id: &str, provider: &str, key: &str) -> Profile {
        let credential = Credential::ApiKey { key: key.into() };
        Profile { id: id.into(), provider: provider.into(), credential }
    }

    fn profiles() -> Vec<Profile> {
        let of = |id: &str| profile(id, "openai", "k");
        let others = [profile("x", "anthropic", "k"), profile("empty", "openai", "")];
        ["a", "b", "c", "d"].map(of).into_iter().chain(others).collect()
    }

    /// `a` was used late, `b` early, `c` never; `d` is cooling, and so is `c` in some.
    fn stats(c_until: Option<i64>) -> BTreeMap<String, Stats> {
        let used = |at| Stats { last_used: Some(at), ..Stats::default() };
        let cooling = |until| Stats { cooldown_until: until, ..Stats::default() };
        [("a", used(900)), ("b", used(100)), ("c", cooling(c_until)), ("d", cooling(Some(5_000)))]
            .map(|(id, stats)| (id.to_owned(), stats))
            .into()
    }

    #[test]
    fn keys_are_tried_in_the_order_that_follows_from_what_is_remembered() {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let written = ids(&["d", "a", "b", "nobody", "x", "a"]);
        let explicit = Some(written.as_slice());
        for (how, c_until, expected) in [
            (Order::default(), None, vec!["c", "b", "a", "d"]),
            (Order::default(), Some(9_000), vec!["b", "a", "d", "c"]),
            (Order::default(), Some(2_000), vec!["b", "a", "c", "d"]),
            (Order::default(), Some(NOW), vec!["c", "b", "a", "d"]),
            (Order { explicit, ..Order::default() }, None, vec!["b", "a", "d"]),
            (
                Order { explicit, respect_explicit: true, ..Order::default() },
                None,
                vec!["a", "b", "d"],
            ),
            (Order { respect_explicit: true, ..Order::default() }, None, vec!["c", "b", "a", "d"]),
            (Order { preferred: Some("d"), ..Order::default() }, None, vec!["d", "c", "b", "a"]),
            (Order { preferred: Some("x"), ..Order::default() }, None, vec!["c", "b", "a", "d"]),
        ] {
            let all = profiles();
            assert_eq!(order("OpenAI", &all, &stats(c_until), how, NOW), expected, "{how:?}");
        }
    }

    #[test]
    fn a_session_stays_with_its_key_while_that_can_be_used() {
        let (all, stats) = (profiles(), stats(None));
        let ordered = order("openai", &all, &stats, Order::default(), NOW);

        assert_eq!(sticky(&ordered, Some("a"), &stats, NOW), Some("a"));
        assert_eq!(sticky(&ordered, Some("d"), &stats, NOW), Some("c"));
        assert_eq!(sticky(&ordered, None, &stats, NOW), Some("c"));
        assert_eq!(sticky(&["d"], Some("d"), &stats, NOW), None);
        assert_eq!(sticky(&["d"], None, &stats, 5_000), Some("d"));
    }
}
