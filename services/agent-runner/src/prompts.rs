//! Stable parts of prompts, kept from turn to turn.
//!
//! To write one costs a millisecond where an agent's files are long, and it is
//! the same until its documents, its tools or the kind of conversation change.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use holdfast_agent::prompt::{Setting, StablePart};

/// The most that are kept; beyond them all are written anew.
const MOST: usize = 128;

/// The version of an agent's documents, and the rest of its setting.
type Key = (u64, u64);

/// The stable parts that were used last.
#[derive(Debug, Default)]
pub(crate) struct Prompts(Mutex<HashMap<Key, StablePart>>);

impl Prompts {
    /// The stable part for this setting, of the agent whose documents have this version.
    pub(crate) fn stable(&self, version: u64, setting: &Setting<'_>) -> StablePart {
        let key = (version, setting.key());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key) {
            return kept.clone();
        }
        let part = StablePart::of(setting);
        let mut kept = lock();
        if kept.len() >= MOST {
            kept.clear();
        }
        kept.insert(key, part.clone());
        part
    }
}

#[cfg(test)]
mod tests {
    use holdfast_agent::{bootstrap::Audience, prompt::PromptMode};
    use holdfast_types::SessionKind;

    use super::*;

    #[test]
    fn a_stable_part_is_written_once_for_a_version_and_a_setting() {
        let prompts = Prompts::default();
        let dm = Setting::of("main", SessionKind::Dm, Audience::Others);
        let brave = Setting { instructions: "Be brave.", ..dm };
        let calm = Setting { instructions: "Be calm.", ..dm };

        let first = prompts.stable(1, &brave);
        // The version says whether the documents changed, and nothing else does.
        let kept = prompts.stable(1, &calm);
        let changed = prompts.stable(2, &calm);
        let short = prompts.stable(1, &Setting { mode: PromptMode::Lite, ..brave });

        assert_eq!(first, kept);
        assert!(changed.text().contains("Be calm."), "{}", changed.text());
        assert_ne!(short, first);
    }
}
