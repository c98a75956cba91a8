//! Messages of the tool `message`: supported actions, their message, attached files.

use holdfast_directory::channel;
use holdfast_session::NewDelivery;
use holdfast_tools::{Call, ToolError, stored_file};
use holdfast_types::{Act, Target};

use crate::{
    media::media_act,
    mesh::{Inside, id},
};

/// Limit on a file's caption, in UTF-16 units; a longer text is sent before the file. It is
/// Telegram's limit (<https://core.telegram.org/bots/api#sendphoto>) and short enough for other
/// channels.
const MOST_CAPTION: usize = 1024;

#[derive(Debug)]
pub(crate) struct What {
    pub(crate) text: String,
    pub(crate) act: Option<Act>,
    pub(crate) attachments: Vec<String>,
}

impl Inside {
    /// Builds the deliveries of a message, in order, or returns for the model why it cannot be
    /// sent.
    pub(crate) async fn deliveries(
        &self,
        call: &Call,
        target: Target,
        what: What,
    ) -> anyhow::Result<Result<Vec<NewDelivery>, String>> {
        let What { text, act, attachments } = what;
        let mut wanted: Vec<&'static str> = act.iter().map(Act::name).collect();
        if !attachments.is_empty() {
            wanted.push("media");
        }
        if !wanted.is_empty()
            && let Err(reason) = self.check_can(call, &target, &wanted).await?
        {
            return Ok(Err(reason));
        }
        let act = match act.map(|act| self.about(call, &target, act)).transpose()? {
            Some(Err(reason)) => return Ok(Err(reason)),
            Some(Ok(act)) => Some(act),
            None => None,
        };
        let mut acts = Vec::new();
        for path in &attachments {
            match self.attachment(call, path).await? {
                Ok(act) => acts.push(act),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        let mut sent: Vec<(String, Option<Act>)> = Vec::new();
        let mut caption = text;
        if act.is_some() || acts.is_empty() || caption.encode_utf16().count() > MOST_CAPTION {
            sent.push((std::mem::take(&mut caption), act));
        }
        for act in acts {
            sent.push((std::mem::take(&mut caption), Some(act)));
        }
        let deliver = |(at, (text, act)): (usize, (String, Option<Act>))| NewDelivery {
            target: Target {
                reply_to: target.reply_to.clone().filter(|_| at == 0),
                ..target.clone()
            },
            text,
            act,
            id: match at {
                0 => id(&call.key),
                at => id(&format!("{}:{at}", call.key)),
            },
        };
        Ok(Ok(sent.into_iter().enumerate().map(deliver).collect()))
    }

    /// Checks that the account's channel supports the actions. The error lists the supported ones.
    async fn check_can(
        &self,
        call: &Call,
        target: &Target,
        wanted: &[&str],
    ) -> anyhow::Result<Result<(), String>> {
        let accounts = self.directory.accounts(call.tenant, Some(&target.channel)).await?;
        let Some(account) = accounts.iter().find(|account| account.id == target.account) else {
            return Ok(Err("the account that this conversation is held on was deleted".to_owned()));
        };
        let can = channel::acts(&account.channel, &account.settings);
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
    fn about(&self, call: &Call, target: &Target, act: Act) -> anyhow::Result<Result<Act, String>> {
        let desk = self.desk(call)?;
        let is_here = desk.place.as_ref().is_some_and(|place| {
            (&place.channel, place.account, &place.chat)
                == (&target.channel, target.account, &target.chat)
        });
        let named = |message: String| match message {
            named if !named.is_empty() => Ok(named),
            _ => desk.about.clone().filter(|_| is_here).ok_or_else(|| {
                "it is not clear which message is meant: say with `message_id`".to_owned()
            }),
        };
        Ok(match act {
            Act::React { message, emoji } => {
                named(message).map(|message| Act::React { message, emoji })
            }
            Act::Pin { message } => named(message).map(|message| Act::Pin { message }),
            Act::Unpin { message } => named(message).map(|message| Act::Unpin { message }),
            other @ (Act::Delete { .. }
            | Act::Poll { .. }
            | Act::Thread { .. }
            | Act::Event
            | Act::Media { .. }
            | Act::Close { .. }
            | Act::Embed { .. }) => Ok(other),
        })
    }

    async fn attachment(&self, call: &Call, path: &str) -> anyhow::Result<Result<Act, String>> {
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
