//! What a step writes besides the session's own tables.

use std::{fmt, pin::Pin};

use holdfast_pg::TenantTx;

use crate::Error;

/// The writes of [`StepEffects::apply`].
pub type EffectFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// What a step writes besides the session's own tables, in the same transaction.
///
/// A write whose outcome is unknown is made again if it was not: `apply` must give the same result
/// each time it starts from the same database.
pub trait StepEffects: fmt::Debug + Send + Sync {
    /// Runs under the session's row lock, after the entries and deliveries are written. It must not
    /// lock rows of other sessions.
    fn apply<'a>(&'a self, tx: &'a mut TenantTx) -> EffectFuture<'a>;
}
