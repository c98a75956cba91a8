//! `holdfast dead`: dead letters, that is messages given up after five attempts.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    DeadLetter, GetDeadLetterRequest, ListDeadLettersRequest, RequeueDeadLetterRequest,
};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 5] = ["message_id", "session_id", "died_at", "reason", "text"];

#[derive(Debug, Subcommand)]
pub enum Dead {
    /// List dead letters, newest first
    List {
        /// Maximum number of dead letters to list
        #[arg(long, default_value_t = 50)]
        limit: u32,
    },
    /// Show a dead letter and its reason
    Show {
        /// Id of the message, as `list` shows it
        message: String,
    },
    /// Accept a message again, at the end of its session's queue
    Requeue {
        /// Id of the message, as `list` shows it
        message: String,
    },
}

impl Dead {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List { limit } => {
                let request =
                    client.request(ListDeadLettersRequest { limit, ..Default::default() });
                let listed = client.answer(client.operations().list_dead_letters(request).await)?;
                screen.list(&COLUMNS, listed.letters.iter().map(view).collect())
            }
            Self::Show { message } => {
                let request = client.request(GetDeadLetterRequest { message_id: message });
                let found = client.answer(client.operations().get_dead_letter(request).await)?;
                screen.one(&COLUMNS, &view(&found.letter.unwrap_or_default()))
            }
            Self::Requeue { message } => {
                let request = client.request(RequeueDeadLetterRequest { message_id: message });
                let made = client.operations().requeue_dead_letter(request).await;
                let made = client.answer(made)?;
                let sentence = format!("accepted anew as {}", made.message_id);
                screen.done(&sentence, &json!({"message_id": made.message_id, "seq": made.seq}))
            }
        }
    }
}

fn view(letter: &DeadLetter) -> Value {
    json!({
        "message_id": letter.message_id,
        "session_id": letter.session_id,
        "seq": letter.seq,
        "source": letter.source,
        "reason": letter.reason,
        "text": letter.text,
        "accepted_at": time(letter.accepted_at.as_ref()),
        "died_at": time(letter.died_at.as_ref()),
    })
}
