//! Messages of the tool `message`: supported actions, their message, attached files.

use holdfast_directory::channel;
use holdfast_session::NewDelivery;
use holdfast_tools::{Call, ToolError, stored_file};
use holdfast_types::{ChannelAction, StoredFile, Target};

use crate::tools::{
    mesh::{SessionTools, delivery_id},
    tool_context::ToolContext,
};

/// Limit on a file's caption, in UTF-16 units; a longer text is sent before the file. It is
/// Telegram's limit (<https://core.telegram.org/bots/api#sendphoto>) and short enough for other
/// channels.
const MAX_CAPTION_UNITS: usize = 1024;

#[derive(Debug)]
pub(crate) struct MessageContent {
    pub(crate) text: String,
    pub(crate) act: Option<ChannelAction>,
    pub(crate) attachments: Vec<String>,
}

impl SessionTools {
    /// Builds the deliveries of a message, in order, or returns for the model why it cannot be
    /// sent.
    pub(crate) async fn deliveries(
        &self,
        call: &Call,
        target: Target,
        what: MessageContent,
    ) -> anyhow::Result<Result<Vec<NewDelivery>, String>> {
        let MessageContent { text, act, attachments } = what;
        let mut wanted: Vec<&'static str> = act.iter().map(ChannelAction::name).collect();
        if !attachments.is_empty() {
            wanted.push("media");
        }
        if !wanted.is_empty()
            && let Err(reason) = self.check_supported(call, &target, &wanted).await?
        {
            return Ok(Err(reason));
        }
        let act = match act.map(|act| self.resolve_message(call, &target, act)).transpose()? {
            Some(Err(reason)) => return Ok(Err(reason)),
            Some(Ok(act)) => Some(act),
            None => None,
        };
        let mut acts = Vec::new();
        for path in &attachments {
            match self.file_act(call, path).await? {
                Ok(act) => acts.push(act),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        let mut sent: Vec<(String, Option<ChannelAction>)> = Vec::new();
        let mut caption = text;
        if act.is_some() || acts.is_empty() || caption.encode_utf16().count() > MAX_CAPTION_UNITS {
            sent.push((std::mem::take(&mut caption), act));
        }
        for act in acts {
            sent.push((std::mem::take(&mut caption), Some(act)));
        }
        let deliver = |(at, (text, act)): (usize, (String, Option<ChannelAction>))| NewDelivery {
            target: Target {
                reply_to: target.reply_to.clone().filter(|_| at == 0),
                ..target.clone()
            },
            text,
            act,
            id: match at {
                0 => delivery_id(&call.key),
                at => delivery_id(&format!("{}:{at}", call.key)),
            },
            delay: std::time::Duration::ZERO,
        };
        Ok(Ok(sent.into_iter().enumerate().map(deliver).collect()))
    }

    /// Checks that the account's channel supports the actions. The error lists the supported ones.
    async fn check_supported(
        &self,
        call: &Call,
        target: &Target,
        wanted: &[&str],
    ) -> anyhow::Result<Result<(), String>> {
        let accounts = self.directory.accounts().list(call.tenant, Some(&target.channel)).await?;
        let Some(account) = accounts.iter().find(|account| account.id == target.account) else {
            return Ok(Err("the account that this conversation is held on was deleted".to_owned()));
        };
        let can = channel::supported_actions(&account.channel, &account.settings);
        Ok(match wanted.iter().find(|wanted| !can.contains(wanted)) {
            Some(missing) => Err(format!(
                "`{}` cannot do `{missing}`; it can: {}",
                account.channel,
                can.join(", ")
            )),
            None => Ok(()),
        })
    }

    /// Fills in the message that an action refers to: by default the one that the turn is about.
    fn resolve_message(
        &self,
        call: &Call,
        target: &Target,
        act: ChannelAction,
    ) -> anyhow::Result<Result<ChannelAction, String>> {
        let desk = ToolContext::of(call)?;
        let is_here = desk.target.as_ref().is_some_and(|place| {
            (&place.channel, place.account, &place.chat)
                == (&target.channel, target.account, &target.chat)
        });
        let named = |message: String| match message {
            named if !named.is_empty() => Ok(named),
            _ => desk.platform_message.clone().filter(|_| is_here).ok_or_else(|| {
                "it is not clear which message is meant: say with `message_id`".to_owned()
            }),
        };
        Ok(match act {
            ChannelAction::React { message, emoji } => {
                named(message).map(|message| ChannelAction::React { message, emoji })
            }
            ChannelAction::Pin { message } => {
                named(message).map(|message| ChannelAction::Pin { message })
            }
            ChannelAction::Unpin { message } => {
                named(message).map(|message| ChannelAction::Unpin { message })
            }
            other @ (ChannelAction::Delete { .. }
            | ChannelAction::Poll { .. }
            | ChannelAction::Thread { .. }
            | ChannelAction::Event
            | ChannelAction::Media { .. }
            | ChannelAction::Close { .. }
            | ChannelAction::Embed { .. }
            | ChannelAction::Unknown) => Ok(other),
        })
    }

    async fn file_act(
        &self,
        call: &Call,
        path: &str,
    ) -> anyhow::Result<Result<ChannelAction, String>> {
        let Some(files) = &self.files else {
            return Ok(Err("there are no files here that could be sent".to_owned()));
        };
        match stored_file(&**files, call, path).await {
            Ok(file) => Ok(Ok(media_act(file))),
            Err(ToolError::Tell(reason)) => Ok(Err(reason)),
            Err(ToolError::Broken(error)) => Err(error),
        }
    }
}

/// Files in `media/` that are audio are sent as voice messages.
pub(crate) fn media_act(file: StoredFile) -> ChannelAction {
    let sounds = matches!(file.media_type.as_str(), "audio/ogg" | "audio/mpeg" | "audio/mp4");
    let voice = sounds && file.path.starts_with("media/");
    ChannelAction::Media { file, voice }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, media_type: &str) -> StoredFile {
        StoredFile {
            path: path.into(),
            media_type: media_type.into(),
            size: 1,
            hash: path.repeat(2),
        }
    }

    #[test]
    fn music_of_the_agents_own_is_no_speech() {
        let is_voice = |path: &str, media_type: &str| {
            matches!(media_act(file(path, media_type)), ChannelAction::Media { voice: true, .. })
        };

        assert!(is_voice("media/a.ogg", "audio/ogg"));
        assert!(!is_voice("songs/a.mp3", "audio/mpeg"));
        assert!(!is_voice("media/a.png", "image/png"));
    }
}
