//! NATS subjects. Ids in them are plain UUIDs.

use std::fmt;

use holdfast_types::{AgentId, NodeId, RunnerId, SessionId, TenantId};

/// A NATS subject, without the installation's prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Subject(String);

impl Subject {
    /// `evt.<tenant>.<family>.<session>`: events of a session, kept by JetStream.
    #[must_use]
    pub fn event(tenant: TenantId, family: &str, session: SessionId) -> Self {
        let (tenant, session) = (tenant.as_uuid(), session.as_uuid());
        Self(format!("evt.{}.{}.{}", tenant.simple(), token(family), session.simple()))
    }

    /// `evt.<tenant>.session.<session>`: what was logged of a session, kept by JetStream.
    #[must_use]
    pub fn session_events(tenant: TenantId, session: SessionId) -> Self {
        Self::event(tenant, "session", session)
    }

    /// `evt.<tenant>.<kind>`, such as `evt.<tenant>.tenant.suspended`: events of a tenant's life.
    #[must_use]
    pub fn tenant_event(tenant: TenantId, kind: &str) -> Self {
        let kind: Vec<String> = kind.split('.').map(token).collect();
        Self(format!("evt.{}.{}", tenant.as_uuid().simple(), kind.join(".")))
    }

    /// `evt.<tenant>.heartbeat.<agent>`: results of an agent's heartbeats.
    #[must_use]
    pub fn heartbeat(tenant: TenantId, agent: AgentId) -> Self {
        let (tenant, agent) = (tenant.as_uuid(), agent.as_uuid());
        Self(format!("evt.{}.heartbeat.{}", tenant.simple(), agent.simple()))
    }

    /// `dlt.<tenant>.<session>`: deltas of a session's replies.
    #[must_use]
    pub fn deltas(tenant: TenantId, session: SessionId) -> Self {
        let (tenant, session) = (tenant.as_uuid(), session.as_uuid());
        Self(format!("dlt.{}.{}", tenant.simple(), session.simple()))
    }

    /// `dlt.<tenant>.*`: deltas of all sessions of a tenant.
    #[must_use]
    pub fn tenant_deltas(tenant: TenantId) -> Self {
        Self(format!("dlt.{}.*", tenant.as_uuid().simple()))
    }

    /// `wake.run`: there may be a session to claim.
    #[must_use]
    pub fn wake_run() -> Self {
        Self("wake.run".to_owned())
    }

    /// `wake.deliver.<channel>`: there may be a delivery to claim.
    #[must_use]
    pub fn wake_deliver(channel: &str) -> Self {
        Self(format!("wake.deliver.{}", token(channel)))
    }

    /// `wake.schedule`: a job was created, changed or requested to run.
    #[must_use]
    pub fn wake_schedule() -> Self {
        Self("wake.schedule".to_owned())
    }

    /// `wake.events`: events were logged.
    #[must_use]
    pub fn wake_events() -> Self {
        Self("wake.events".to_owned())
    }

    /// `wake.access`: rights of keys, people, devices or console sessions were taken away.
    #[must_use]
    pub fn wake_access() -> Self {
        Self("wake.access".to_owned())
    }

    /// `ctl.<runner>`: signals to one runner.
    #[must_use]
    pub fn control(runner: RunnerId) -> Self {
        Self(format!("ctl.{}", runner.as_uuid().simple()))
    }

    /// `ask.mcp`: probes of MCP servers, for any runner of the default pool; `ask.mcp.<pool>` for
    /// those of another.
    #[must_use]
    pub fn probe_mcp(pool: &str) -> Self {
        Self::of_pool("ask.mcp", pool)
    }

    /// `ask.model`: questions to models, for any runner of the default pool; `ask.model.<pool>` for
    /// those of another.
    #[must_use]
    pub fn model(pool: &str) -> Self {
        Self::of_pool("ask.model", pool)
    }

    /// `ask.prompt`: questions for prompts, for any runner of the default pool; `ask.prompt.<pool>` for
    /// those of another.
    #[must_use]
    pub fn prompt(pool: &str) -> Self {
        Self::of_pool("ask.prompt", pool)
    }

    fn of_pool(subject: &str, pool: &str) -> Self {
        Self(match pool {
            "" => subject.to_owned(),
            pool => format!("{subject}.{}", token(pool)),
        })
    }

    /// `ask.runners`: requests for a report, for all runners.
    #[must_use]
    pub fn runner_reports() -> Self {
        Self("ask.runners".to_owned())
    }

    /// `ask.processes`: requests for a report, for all processes of the mesh.
    #[must_use]
    pub fn process_reports() -> Self {
        Self("ask.processes".to_owned())
    }

    /// `job.<tenant>.<session>`: questions about the background commands of a session.
    #[must_use]
    pub fn jobs(tenant: TenantId, session: SessionId) -> Self {
        let (tenant, session) = (tenant.as_uuid(), session.as_uuid());
        Self(format!("job.{}.{}", tenant.simple(), session.simple()))
    }

    /// `node.<tenant>.<node>`: requests to a node.
    #[must_use]
    pub fn node(tenant: TenantId, node: NodeId) -> Self {
        let (tenant, node) = (tenant.as_uuid(), node.as_uuid());
        Self(format!("node.{}.{}", tenant.simple(), node.simple()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether questions on this subject have to be signed: all but those for reports, and requests
    /// to a node, whose commands are signed for the node itself.
    pub(crate) fn is_signed(&self) -> bool {
        let is_report = [Self::runner_reports(), Self::process_reports()].contains(self);
        !is_report && self.family() != "node"
    }

    /// Returns the label under which drops are counted: the first token.
    pub(crate) fn family(&self) -> &'static str {
        match self.0.split('.').next() {
            Some("evt") => "evt",
            Some("dlt") => "dlt",
            Some("wake") => "wake",
            Some("ctl") => "ctl",
            Some("job") => "job",
            Some("node") => "node",
            _ => "other",
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns one token of a subject. Characters other than letters, digits and `-` become `_`, and so
/// does an empty text.
fn token(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    match text {
        "" => "_".to_owned(),
        text => text.chars().map(plain).collect(),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn subjects_have_the_form_that_the_design_gives_them() {
        let tenant = TenantId::from(Uuid::nil());
        let session = SessionId::from(Uuid::max());

        assert_eq!(
            Subject::event(tenant, "runs", session).as_str(),
            "evt.00000000000000000000000000000000.runs.ffffffffffffffffffffffffffffffff"
        );
        assert_eq!(
            Subject::tenant_event(tenant, "quota.warning").as_str(),
            "evt.00000000000000000000000000000000.quota.warning"
        );
        assert_eq!(Subject::wake_deliver("telegram").as_str(), "wake.deliver.telegram");
    }

    #[test]
    fn all_questions_are_signed_but_those_for_reports_and_to_nodes() {
        let (tenant, session) = (TenantId::generate(), SessionId::generate());
        let node = NodeId::from(Uuid::now_v7());
        let signed = [
            Subject::jobs(tenant, session),
            Subject::model(""),
            Subject::model("runners"),
            Subject::prompt("large"),
            Subject::probe_mcp(""),
        ];
        let unsigned =
            [Subject::runner_reports(), Subject::process_reports(), Subject::node(tenant, node)];

        assert!(signed.iter().all(Subject::is_signed));
        assert!(!unsigned.iter().any(Subject::is_signed));
    }

    #[test]
    fn a_name_cannot_reach_other_subjects() {
        for (given, taken) in [("a.b", "a_b"), ("*", "_"), (">", "_"), ("x y", "x_y"), ("", "_")] {
            assert_eq!(Subject::wake_deliver(given).as_str(), format!("wake.deliver.{taken}"));
        }
    }
}
