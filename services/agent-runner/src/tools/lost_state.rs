//! What sessions have lost with the runner that held it.

use holdfast_sandbox::Owner;
use holdfast_session::{HeldKind, LostItem, Sessions};
use holdfast_tools::{Call, LostWindows, ReasonFuture};

/// What sessions have lost, for tools that are asked for it.
#[derive(Debug, Clone)]
pub(crate) struct Losses(pub(crate) Sessions);

impl Losses {
    /// The lost item of this kind and name, or the newest of this kind.
    pub(crate) async fn find(
        &self,
        owner: Owner,
        kind: HeldKind,
        name: Option<&str>,
    ) -> Option<LostItem> {
        let lost = self.0.lost_state(owner.tenant, owner.session).await.ok()?;
        lost.into_iter()
            .find(|lost| lost.item.kind == kind && name.is_none_or(|name| lost.item.name == name))
    }
}

impl LostWindows for Losses {
    fn reason<'a>(&'a self, call: &'a Call) -> ReasonFuture<'a> {
        let owner = Owner { tenant: call.tenant, session: call.session };
        Box::pin(async move {
            let lost = self.find(owner, HeldKind::Browser, None).await?;
            Some(lost.reason.to_string())
        })
    }
}
