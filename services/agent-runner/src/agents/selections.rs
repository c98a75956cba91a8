//! Cache of models' choices among skills, by message (spec CTX-011).

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
};

use holdfast_types::{Chat, ChatMessage, TenantId};

/// Cached answers. When full, all are cleared.
const MAX_CACHED_ANSWERS: usize = 1_000;

/// Tenant, model, and hash of the request: the message, its channel and the candidates.
pub(crate) type SelectionKey = (TenantId, String, u64);

/// Answers of models that chose skills.
#[derive(Debug, Default)]
pub(crate) struct SelectionCache(Mutex<HashMap<SelectionKey, String>>);

impl SelectionCache {
    pub(crate) fn key(tenant: TenantId, model: &str, chat: &Chat) -> SelectionKey {
        let mut hash = DefaultHasher::new();
        for message in &chat.messages {
            if let ChatMessage::User { text, .. } = message {
                text.hash(&mut hash);
            }
        }
        (tenant, model.to_owned(), hash.finish())
    }

    pub(crate) fn get(&self, key: &SelectionKey) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(crate) fn store(&self, key: SelectionKey, answer: String) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= MAX_CACHED_ANSWERS {
            answers.clear();
        }
        answers.insert(key, answer);
    }
}
