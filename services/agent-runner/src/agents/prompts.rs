//! Cache of the stable parts of prompts.
//!
//! Building one takes a millisecond if the agent's files are long, and the result is the same until
//! the files, the tools or the kind of conversation change.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use holdfast_agent::prompt::{PromptSettings, StablePart};

/// Cached parts. When full, all are cleared.
const MAX_CACHED_PROMPTS: usize = 128;

/// Version of the agent's snapshot and hash of the other inputs.
type PromptKey = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct PromptCache(Mutex<HashMap<PromptKey, StablePart>>);

impl PromptCache {
    /// Returns the stable part of an agent's prompt; `version` is that of its snapshot.
    pub(crate) fn stable_part(&self, version: u64, setting: &PromptSettings<'_>) -> StablePart {
        let key = (version, setting.key());
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = lock().get(&key) {
            return kept.clone();
        }
        let part = StablePart::of(setting);
        let mut kept = lock();
        if kept.len() >= MAX_CACHED_PROMPTS {
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
        let prompts = PromptCache::default();
        let dm = PromptSettings::of("main", SessionKind::Dm, Audience::Others);
        let brave = PromptSettings { instructions: "Be brave.", ..dm };
        let calm = PromptSettings { instructions: "Be calm.", ..dm };

        let first = prompts.stable_part(1, &brave);
        // A change of the documents is detected by the version alone.
        let kept = prompts.stable_part(1, &calm);
        let changed = prompts.stable_part(2, &calm);
        let short = prompts.stable_part(1, &PromptSettings { mode: PromptMode::Lite, ..brave });

        assert_eq!(first, kept);
        assert!(changed.text().contains("Be calm."), "{}", changed.text());
        assert_ne!(short, first);
    }
}
