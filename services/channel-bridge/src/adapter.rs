//! What the bridge asks of a channel (spec CHN-001 to CHN-003).
//!
//! A channel's way in is its own: Telegram is polled or calls, a webhook calls.
//! The way out is the same for all, and this is it.

use std::fmt;

use futures::future::BoxFuture;
use holdfast_session::Delivery;
use holdfast_types::{DeliveryClass, Sender};

use crate::{Outcome, split::split};

/// One account on one channel, as far as replies go.
pub trait ChannelAdapter: fmt::Debug + Send + Sync {
    /// The kind of channel.
    fn channel(&self) -> &'static str;

    /// What the platform can promise about a message sent twice.
    fn class(&self) -> DeliveryClass;

    /// Whether this sender may write to the account.
    fn is_allowed(&self, sender: &Sender) -> bool;

    /// Whether the platform takes this text as one message.
    fn fits(&self, text: &str) -> bool;

    /// Sends one part, once, with its file if it has one. It decides nothing about sending again.
    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome>;

    /// A reply in parts that the platform takes.
    fn cut(&self, text: &str) -> Vec<String> {
        split(text, |part| self.fits(part))
    }
}
