//! Rights that NATS may deny a login: which one is missing, and what to grant.
//!
//! NATS tells a client of a denied right only when it is used. Subscriptions are made at the start,
//! so what a service publishes later is tried then, too.

use async_nats::{Client, jetstream};
use bytes::Bytes;

use crate::Config;

/// First parts of the subjects to which a service publishes, by the name of its connection. Events
/// are not among them: NATS would keep one that is tried.
const SUBJECT_FAMILIES: [(&str, &[&str]); 3] = [
    ("holdfast-gateway", &["wake", "ctl", "node", "ask"]),
    ("holdfast-runner", &["wake", "ctl", "node", "job", "dlt"]),
    ("holdfast-scheduler", &["wake", "ctl"]),
];

/// Services that publish events, for which they use JetStream.
const PUBLISH_EVENTS: [&str; 2] = ["holdfast-runner", "holdfast-scheduler"];

/// Whether the service `name` may create the stream of events. A scheduler leaves it to a runner.
pub(crate) fn may_create_streams(name: &str) -> bool {
    name != "holdfast-scheduler"
}

/// Uses each right once that the service `name` needs. Denied ones are reported to the connection.
pub(crate) async fn try_all(
    client: Client,
    jetstream: jetstream::Context,
    (config, name): (Config, String),
) {
    let families = SUBJECT_FAMILIES.iter().find(|(service, _)| *service == name);
    for family in families.map_or(&[][..], |(_, families)| families) {
        // Nobody listens to this one.
        let subject = under(&config.prefix, &format!("{family}.try"));
        if client.publish(subject, Bytes::new()).await.is_err() {
            return;
        }
    }
    if PUBLISH_EVENTS.contains(&name.as_str()) {
        drop(client.flush().await);
        drop(jetstream.get_stream(config.stream()).await);
    }
}

/// A right that a login lacks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct DeniedRight {
    /// `publish` or `subscribe`, as in the configuration of NATS.
    pub operation: &'static str,
    pub subject: String,
    /// Pattern of subjects that includes what is needed besides.
    pub grant: String,
}

impl DeniedRight {
    /// Reads what NATS says: `Permissions Violation for Publish to "wake.run"`.
    pub fn parse(error: &str, prefix: &str) -> Option<Self> {
        let lower = error.to_lowercase();
        let operation = match lower.split_once("permissions violation for ")?.1 {
            rest if rest.starts_with("publish") => "publish",
            rest if rest.starts_with("subscription") => "subscribe",
            _ => return None,
        };
        let subject = error.split('"').nth(1)?.to_owned();
        // Services publish a subject of each family once to try the right; they subscribe to those that
        // they need.
        let is_listed =
            ["wake.", "ask."].iter().any(|one| subject.starts_with(&under(prefix, one)));
        let grant = match operation {
            "subscribe" if is_listed => subject.clone(),
            _ => pattern(&subject, prefix),
        };
        Some(Self { operation, subject, grant })
    }

    pub fn advice(&self) -> String {
        format!(
            "add `{}` to `{}` in the permissions of this service's user in NATS (docs/operating.md \
             lists all)",
            self.grant, self.operation
        )
    }
}

/// Returns the pattern of the subjects that begin like `subject`.
fn pattern(subject: &str, prefix: &str) -> String {
    if subject.starts_with("$JS.API.") {
        return subject.to_owned();
    }
    if let Some(service) = subject.strip_prefix("_INBOX.").and_then(|rest| rest.split('.').next()) {
        return format!("_INBOX.{service}.>");
    }
    let own = match prefix {
        "" => Some(subject),
        prefix => subject.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('.')),
    };
    let (prefix, rest) = own.map_or(("", subject), |own| (prefix, own));
    let family = rest.split('.').next().unwrap_or(rest);
    under(prefix, &format!("{family}.>"))
}

fn under(prefix: &str, subject: &str) -> String {
    match prefix {
        "" => subject.to_owned(),
        prefix => format!("{prefix}.{subject}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grant_includes_all_subjects_of_the_same_kind() {
        let denied = |error: &str, prefix| {
            DeniedRight::parse(error, prefix).map(|right| (right.operation, right.grant))
        };
        let publish = r#"nats: Permissions Violation for Publish to "a.wake.run""#;
        let subscribe =
            r#"nats: Permissions Violation for Subscription to "wake.run" using queue "runners""#;
        let stream = r#"Permissions Violation for Publish to "$JS.API.STREAM.INFO.EVENTS""#;
        let inbox = r#"Permissions Violation for Subscription to "_INBOX.holdfast-runner.xy.*""#;

        assert_eq!(denied(publish, "a"), Some(("publish", "a.wake.>".to_owned())));
        assert_eq!(denied(publish, ""), Some(("publish", "a.>".to_owned())));
        assert_eq!(denied(subscribe, ""), Some(("subscribe", "wake.run".to_owned())));
        assert_eq!(denied(stream, "a"), Some(("publish", "$JS.API.STREAM.INFO.EVENTS".to_owned())));
        assert_eq!(denied(inbox, "a"), Some(("subscribe", "_INBOX.holdfast-runner.>".to_owned())));
        assert_eq!(denied("nats: Authorization Violation", "a"), None);
    }
}
