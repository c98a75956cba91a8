//! Messages that are edited while an answer is written
//! (<https://spec.matrix.org/latest/client-server-api/#event-replacements>).

use std::time::Duration;

use futures::future::BoxFuture;
use holdfast_types::Target;
use serde_json::json;
use tracing::debug;

use super::{Matrix, send::relation_of};
use crate::{
    Outcome,
    call::CallError,
    channel::{Edit, MessageEdits},
};

/// Each edit is an event, of which Synapse permits one in five seconds by default.
const INTERVAL: Duration = Duration::from_secs(5);

impl Matrix {
    async fn post_text(&self, target: &Target, text: &str) -> Outcome {
        let mut content = self.text_content(text);
        let reply_to = target.reply_to.as_deref();
        if let Some(relation) = relation_of(target.thread.as_deref(), reply_to) {
            content["m.relates_to"] = relation;
        }
        let txn = random_txn();
        Outcome::from(self.server.send(&target.chat, "m.room.message", &txn, &content).await)
    }

    async fn edit_text(&self, Edit { target, id, text, delivery }: Edit<'_>) -> Outcome {
        let new = self.text_content(text);
        let mut content = new.clone();
        // Shown by clients that do not know edits.
        content["body"] = format!("* {text}").into();
        content["m.new_content"] = new;
        content["m.relates_to"] = json!({"rel_type": "m.replace", "event_id": id});
        let txn = delivery.map_or_else(random_txn, |delivery| format!("edit-{delivery}"));
        let edited = self.server.send(&target.chat, "m.room.message", &txn, &content).await;
        match Outcome::from(edited.map_err(CallError::of_harmless_call)) {
            // Replies and reactions refer to the first event.
            Outcome::Sent { .. } => Outcome::Sent { platform_id: id.to_owned() },
            failed => failed,
        }
    }

    async fn delete_text(&self, target: &Target, id: &str) {
        if let Err(error) = self.server.redact(&target.chat, id, &random_txn()).await {
            debug!(%error, "a preview was not deleted");
        }
    }
}

fn random_txn() -> String {
    format!("preview-{:032x}", rand::random::<u128>())
}

impl MessageEdits for Matrix {
    fn min_interval(&self, _: &Target) -> Duration {
        INTERVAL
    }

    fn post<'a>(&'a self, target: &'a Target, text: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.post_text(target, text))
    }

    fn edit<'a>(&'a self, edit: Edit<'a>) -> BoxFuture<'a, Outcome> {
        Box::pin(self.edit_text(edit))
    }

    fn remove<'a>(&'a self, target: &'a Target, id: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.delete_text(target, id))
    }
}
