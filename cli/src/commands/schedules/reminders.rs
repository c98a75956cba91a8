//! `holdfast reminders`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AddReminderRequest, CancelReminderRequest, ListRemindersRequest, Reminder,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 5] = ["id", "at", "content", "auto_continue", "session"];

#[derive(Debug, Subcommand)]
pub enum Reminders {
    /// List the pending reminders of a user
    List {
        /// The user: `owner`, or a person as `telegram:42` or `api:anna`
        #[arg(long = "for", default_value = "owner")]
        user: String,
    },
    /// Create a reminder for a user
    Add {
        /// Time of the reminder: `9:00`, `2026-12-24 18:00`, `tomorrow 9:00`, `in 20 minutes`
        time: String,
        /// Text to remind the user of
        content: String,
        /// The user: `owner`, or a person as `telegram:42` or `api:anna`
        #[arg(long = "for", default_value = "owner")]
        user: String,
        /// Ask the agent when it fires; the agent may set the next reminder
        #[arg(long)]
        auto_continue: bool,
        /// Name or id of the agent [default: the default agent]
        #[arg(long, default_value = "", hide_default_value = true)]
        agent: String,
        /// Key of the session that gets the reminder [default: the user's own conversation]
        #[arg(long, default_value = "", hide_default_value = true)]
        session: String,
        /// Time zone of the time, for example `Europe/Oslo` [default: the agent's]
        #[arg(long, default_value = "", hide_default_value = true)]
        tz: String,
    },
    /// Cancel a pending reminder of a user
    Rm {
        /// Id of the reminder, or the part after its last `_`
        id: String,
        /// The user: `owner`, or a person as `telegram:42` or `api:anna`
        #[arg(long = "for", default_value = "owner")]
        user: String,
    },
}

impl Reminders {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { user } => {
                let request = client.request(ListRemindersRequest { user });
                let listed = client.answer(client.schedules().list_reminders(request).await)?;
                screen.list(&COLUMNS, listed.reminders.iter().map(view).collect())
            }
            Self::Add { time, content, user, auto_continue, agent, session, tz } => {
                let request = AddReminderRequest {
                    user,
                    time,
                    content,
                    auto_continue,
                    agent,
                    session,
                    time_zone: tz,
                    ..AddReminderRequest::default()
                };
                let set = client.schedules().add_reminder(client.request(request)).await;
                let set = client.answer(set)?;
                let mut shown = view(&set.reminder.unwrap_or_default());
                shown["text"] = Value::String(set.text);
                screen.one(&["text", "id", "at"], &shown)
            }
            Self::Rm { id, user } => {
                let request = client.request(CancelReminderRequest { user, id });
                let id = client.answer(client.schedules().cancel_reminder(request).await)?.id;
                screen.done("removed", &json!({"removed": id}))
            }
        }
    }
}

pub fn view(one: &Reminder) -> Value {
    json!({
        "id": one.id,
        "user": one.user,
        "content": one.content,
        "at": time(one.at.as_ref()),
        "auto_continue": one.auto_continue,
        "session": one.session,
    })
}
