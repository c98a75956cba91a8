//! Erasure of an item, a session or a user.

use holdfast_types::TenantId;
use uuid::Uuid;

use super::{MemoryService, erase};
use crate::{
    Error,
    store::{
        erasures::{self, ErasureStatus, Rows},
        forget::{self, Count, Erase},
        items, second_pass,
    },
    viewer::Viewer,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErasureTarget {
    Item(Uuid),
    /// Everything that came from a session.
    Session(String),
    User(String),
    /// The turns of a session.
    Turns(String),
}

#[derive(Debug, Clone)]
pub struct ErasureCounts {
    /// Erased rows by table.
    pub erased: Vec<Count>,
    /// Remaining rows by table; all zero.
    pub left: Vec<Count>,
}

impl MemoryService {
    /// Erases, and counts the remaining rows in the same transaction.
    pub async fn forget(
        &self,
        tenant: TenantId,
        who: &Viewer,
        what: ErasureTarget,
    ) -> Result<ErasureCounts, Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let what = match what {
            ErasureTarget::Item(id) => {
                let item = items::get(&mut tx, who, id).await?;
                let item = item.ok_or_else(|| {
                    Error::not_found("item", &crate::validation::prefixed_id("itm", id))
                })?;
                Erase::Item(item.item_id)
            }
            // Callers without full access erase only their own part of a session, and what belongs
            // to no user.
            ErasureTarget::Session(session) => {
                let whose = (!who.everything).then(|| (who.agents(), who.users()));
                Erase::Session(session, whose)
            }
            ErasureTarget::Turns(session) => {
                Erase::Turns(session, (!who.everything).then(|| (who.agents(), who.users())))
            }
            ErasureTarget::User(user) => {
                if !who.everything && user != who.user {
                    return Err(Error::not_found("user", &user));
                }
                Erase::User(user)
            }
        };
        let (erased, left) = erase(&mut tx, &what).await?;
        let whole = match &what {
            Erase::Session(session, None) => Some(("session", session)),
            Erase::User(user) => Some(("user", user)),
            Erase::Session(_, Some(_)) | Erase::Turns(..) | Erase::Item(_) | Erase::Agent(_) => {
                None
            }
        };
        if let Some((what, subject)) = whole {
            let rows = (
                &erasures::add_counts(Rows::new(), &erased),
                &erasures::add_counts(Rows::new(), &left),
            );
            second_pass::record_requested(
                &mut tx,
                (what, subject),
                rows,
                second_pass::DELAY.as_secs_f64(),
            )
            .await?;
        }
        tx.commit().await?;
        self.waiting.notify_one();
        self.views.invalidate(tenant);
        Ok(ErasureCounts { erased, left })
    }

    /// Gives everything of one user to another. Returns the number of items and turns.
    ///
    /// # Errors
    ///
    /// As if the user did not exist, for callers without full access.
    pub async fn move_user(
        &self,
        tenant: TenantId,
        who: &Viewer,
        from: &str,
        to: &str,
    ) -> Result<i64, Error> {
        if !who.everything {
            return Err(Error::not_found("user", from));
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let moved = forget::move_user(&mut tx, from, to).await?;
        tx.commit().await?;
        self.views.invalidate(tenant);
        Ok(moved)
    }

    /// Lists erasures of deleted sessions and agents and of requested ones. Empty for callers
    /// without full access.
    pub async fn erasures(
        &self,
        tenant: TenantId,
        who: &Viewer,
        subject: &str,
        limit: i64,
    ) -> Result<Vec<ErasureStatus>, Error> {
        if !who.everything {
            return Ok(Vec::new());
        }
        let mut tx = self.pools.tenant(tenant).await?;
        let found = erasures::list(&mut tx, subject, limit).await?;
        tx.finish_reading();
        Ok(found)
    }

    /// Returns a tenant's rows by table, the number of queued units, and how many of these were
    /// given up.
    pub async fn status(&self, tenant: TenantId) -> Result<(Vec<Count>, i64, i64), Error> {
        let mut tx = self.pools.tenant(tenant).await?;
        let rows = forget::rows(&mut tx).await?;
        let (waiting, given_up) = crate::store::queue::counts(&mut tx).await?;
        tx.finish_reading();
        Ok((rows, waiting, given_up))
    }
}
