//! Interface of a channel for outgoing messages (spec CHN-001 to CHN-003).
//!
//! Inbound messages have no common interface: Telegram is polled or calls, a webhook calls.

use std::fmt;

use futures::future::BoxFuture;
use holdfast_session::Delivery;
use holdfast_types::Sender;

use crate::{Outcome, split::split};

/// One account on one channel, for sending replies.
pub trait ChannelAdapter: fmt::Debug + Send + Sync {
    /// Returns the kind of channel.
    fn channel(&self) -> &'static str;

    /// Whether this sender may write to the account.
    fn is_allowed(&self, sender: &Sender) -> bool;

    /// Whether the platform takes this text as one message.
    fn fits(&self, text: &str) -> bool;

    /// Sends one part once, with its file if it has one. The caller decides about retries.
    fn send<'a>(&'a self, part: &'a Delivery, file: Option<&'a [u8]>) -> BoxFuture<'a, Outcome>;

    /// Splits a reply into parts that the platform takes.
    fn split_reply(&self, text: &str) -> Vec<String> {
        split(text, |part| self.fits(part))
    }
}
