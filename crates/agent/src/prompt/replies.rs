//! Replies of the agent: sections 13 to 15, 19, 20, 22 and 23.

use holdfast_types::Reactions;

use super::{
    input::{Channel, PromptSettings, REPLY_TAGS, TurnContext},
    write::{MAX_NAME_CHARS, MAX_PARAGRAPH_CHARS, heading},
};
use crate::{outcome::NO_REPLY, text::push_line};

/// Answer to a heartbeat when nothing needs doing.
pub const HEARTBEAT_OK: &str = "HEARTBEAT_OK";

/// Default text of a heartbeat.
pub const HEARTBEAT_PROMPT: &str = "Look at HEARTBEAT.md, if there is one, and do what it asks for; \
    take up nothing from earlier conversations. If nothing needs attention, reply HEARTBEAT_OK.";

/// Section 13, if the channel can quote a message.
pub(super) fn reply_tags(out: &mut String, setting: &PromptSettings<'_>, moment: &TurnContext<'_>) {
    let can = moment.channel.is_some_and(|channel| channel.can(REPLY_TAGS));
    if setting.is_full() && can {
        heading(out, "## Reply Tags");
        out.push_str(
            "To answer as a quoting reply, put one tag into your answer; it is taken out before \
             sending.\n\
             - [[reply_to_current]]: quotes the message that you answer.\n\
             - [[reply_to:<id>]]: quotes the message with that id; only for an id that you were \
             given.\n",
        );
    }
}

pub(super) fn messaging(out: &mut String, setting: &PromptSettings<'_>, moment: &TurnContext<'_>) {
    if !setting.is_full() {
        return;
    }
    heading(out, "## Messaging");
    out.push_str("- Your answer goes by itself to where the message came from.\n");
    if setting.has_tool("sessions_send") {
        out.push_str("- To write to another session, use `sessions_send`.\n");
    }
    if setting.has_tool("message") {
        out.push_str("- To write elsewhere, or before you are done, use `message`");
        if let Some(Channel { actions: [_, ..], .. }) = moment.channel {
            out.push_str("; actions here: ");
            actions(out, moment);
        }
        out.push_str(".\n- If `message` has already said it here, answer with exactly ");
        out.push_str(NO_REPLY);
        out.push_str(", so that nothing is said twice.\n");
    }
}

fn actions(out: &mut String, moment: &TurnContext<'_>) {
    let actions = moment.channel.iter().flat_map(|channel| channel.actions.iter());
    for (at, action) in actions.enumerate() {
        out.push_str(if at == 0 { "" } else { ", " });
        push_line(out, action, MAX_NAME_CHARS);
    }
}

pub(super) fn voice(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.is_full() && setting.speaks {
        heading(out, "## Voice (TTS)");
        out.push_str(
            "Where a voice is wanted, put a tag into your answer: [[tts]] has all of it spoken, \
             [[tts:words]] only these words, which are then not shown. Write what is spoken in \
             short sentences, without tables or code.\n",
        );
    }
}

/// Section 19 (spec C-35).
pub(super) fn silence(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.is_full() {
        heading(out, "## Silent Replies");
        out.push_str("If nothing should be said, answer with exactly ");
        out.push_str(NO_REPLY);
        out.push_str(" and nothing else; never put it into another answer.\n");
    }
}

pub(super) fn heartbeats(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.is_full() {
        heading(out, "## Heartbeats");
        out.push_str("Heartbeat prompt: ");
        push_line(out, setting.heartbeat_prompt.unwrap_or(HEARTBEAT_PROMPT), MAX_PARAGRAPH_CHARS);
        out.push_str("\nIf you get that and nothing needs attention, answer with exactly ");
        out.push_str(HEARTBEAT_OK);
        out.push_str("; else say what does, without it.\n");
    }
}

pub(super) fn reactions(out: &mut String, _: &PromptSettings<'_>, moment: &TurnContext<'_>) {
    let guidance = match moment.reactions {
        Reactions::Off => return,
        Reactions::Minimal => {
            "You may react to messages here, sparingly: to confirm what matters or to show what \
             you feel, never to small talk; at most one reaction in 5 to 10 exchanges.\n"
        }
        Reactions::Extensive => {
            "You may react to messages here freely: to confirm, to show what you feel, to answer \
             in place of words, whenever it seems natural.\n"
        }
    };
    heading(out, "## Reactions");
    out.push_str(guidance);
}

pub(super) fn reasoning(out: &mut String, setting: &PromptSettings<'_>) {
    if setting.marks_reasoning {
        heading(out, "## Reasoning Format");
        out.push_str(
            "Put all of your reasoning between <think> and </think>, and after it your answer \
             between <final> and </final>. Only what is in <final> is shown to anyone.\n",
        );
    }
}
