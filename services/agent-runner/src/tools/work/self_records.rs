//! Records of changes that agents make to what they say of themselves, and their proposals.

pub(crate) mod proposals;

use holdfast_session::Sessions;
use holdfast_tools::{Call, SelfChange, SelfLog};
use holdfast_work::{SelfUpdate, Work};

use super::todos;

#[derive(Debug)]
pub(crate) struct SelfRecords {
    pub(crate) work: Work,
    pub(crate) sessions: Sessions,
}

impl SelfLog for SelfRecords {
    async fn record_self_change(&self, call: &Call, change: SelfChange) -> anyhow::Result<()> {
        let list = self.sessions.root_of(call.tenant, call.session).await?;
        let place = todos::place(call, list)?;
        let SelfChange { section, goal, risk, benefit, revision, diff } = change;
        let section = section.to_owned();
        let update = SelfUpdate { section, goal, risk, benefit, revision, diff };
        Ok(self.work.record_self_update(call.tenant, &place, &call.key, &update).await?)
    }
}
