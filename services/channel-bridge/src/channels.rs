//! The channels. A new one is a folder here, an entry in [`CHANNELS`], and its settings in
//! `holdfast_directory::channel`.

mod discord;
mod email;
mod irc;
mod matrix;
mod slack;
mod telegram;
mod webhook;
mod whatsapp;
mod widget;

pub use self::widget::page_budget;
use crate::channel::Channel;

/// All channels that this bridge serves.
pub static CHANNELS: [&Channel; 9] = [
    &telegram::CHANNEL,
    &webhook::CHANNEL,
    &irc::CHANNEL,
    &discord::CHANNEL,
    &slack::CHANNEL,
    &matrix::CHANNEL,
    &email::CHANNEL,
    &whatsapp::CHANNEL,
    &widget::CHANNEL,
];

#[cfg(test)]
mod tests {
    use holdfast_directory::channel;

    use super::*;

    #[test]
    fn each_channel_is_registered_in_both_places() {
        let served: Vec<_> = CHANNELS.iter().map(|channel| channel.name).collect();
        let known: Vec<_> = channel::CHANNELS.iter().map(|kind| kind.name).collect();

        assert_eq!(served, known);
    }
}
