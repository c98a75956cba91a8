//! Failed requests to models of a run, as its caller may see them.

use holdfast_grpc::Caller;
use holdfast_proto::gateway::v1 as pb;
use holdfast_session::EntryView;
use holdfast_types::{Entry, ProviderFailure};

use crate::permissions::rights::{self, ConversationRight};

/// Adds the failed requests to models and the reason for which the last answer ended. Callers who read
/// only what is their own get the classes alone: the provider's words are for those who can do
/// something about them.
pub(super) fn with_failures(run: pb::Run, entries: &[EntryView], caller: &Caller) -> pb::Run {
    let reads_all = rights::reaches_all(caller, ConversationRight::Read);
    let failures = entries.iter().flat_map(|view| view.entry.provider_failures());
    let provider_failures = failures
        .map(|failure| match reads_all {
            true => whole(failure),
            false => class_of(failure),
        })
        .collect();
    let stop = entries.iter().rev().find_map(|view| match &view.entry {
        Entry::Thought { record, .. } => Some(record.as_ref()?.stop.clone()),
        Entry::Heard { .. }
        | Entry::Called { .. }
        | Entry::Returned { .. }
        | Entry::Noted { .. } => None,
    });
    pb::Run { provider_failures, stop: stop.unwrap_or_default(), ..run }
}

fn class_of(failure: &ProviderFailure) -> pb::ProviderFailure {
    let class = failure.class.clone();
    pb::ProviderFailure { class, attempts: failure.attempts, ..pb::ProviderFailure::default() }
}

fn whole(failure: &ProviderFailure) -> pb::ProviderFailure {
    pb::ProviderFailure {
        provider: failure.provider().to_owned(),
        model: failure.model.clone(),
        class: failure.class.clone(),
        status: failure.status.map(u32::from).unwrap_or_default(),
        code: failure.code.clone(),
        text: failure.text.clone(),
        attempts: failure.attempts,
        repair: failure.repair.clone(),
    }
}
