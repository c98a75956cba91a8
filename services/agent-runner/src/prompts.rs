//! Cache of the stable parts of prompts.
//!
//! Building one takes a millisecond if the agent's files are long, and the result is the same until
//! the files, the tools or the kind of conversation change.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use holdfast_agent::prompt::{Setting, StablePart};

/// Cached parts. When full, all are cleared.
const MOST: usize = 128;

/// Version of the agent's snapshot and hash of the other inputs.
type Key = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Prompts(Mutex<HashMap<Key, StablePart>>);

impl Prompts {
    /// Returns the stable part of an agent's prompt; `version` is that of its snapshot.
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
        // A change of the documents is detected by the version alone.
        let kept = prompts.stable(1, &calm);
        let changed = prompts.stable(2, &calm);
        let short = prompts.stable(1, &Setting { mode: PromptMode::Lite, ..brave });

        assert_eq!(first, kept);
        assert!(changed.text().contains("Be calm."), "{}", changed.text());
        assert_ne!(short, first);
    }
}
