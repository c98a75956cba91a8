//! `holdfast people`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{ListPeopleRequest, Person, SetPersonStateRequest};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const COLUMNS: [&str; 6] = ["id", "name", "role", "subject", "seen_at", "disabled_at"];
/// People per request.
const PAGE_SIZE: u32 = 200;

#[derive(Debug, Subcommand)]
pub enum People {
    /// List the people who have signed in
    List,
    /// Refuse a person; takes effect everywhere within 5 s
    Disable {
        /// Id of the person, as `list` shows it
        id: String,
    },
    /// Accept a person again
    Enable {
        /// Id of the person, as `list` shows it
        id: String,
    },
}

impl People {
    pub async fn run(self, client: &Client, screen: &Screen) -> Result<(), Error> {
        match self {
            Self::List => {
                let (mut people, mut page_token) = (Vec::new(), String::new());
                loop {
                    let request = ListPeopleRequest { limit: PAGE_SIZE, page_token };
                    let listed = client.people().list_people(client.request(request)).await;
                    let listed = client.answer(listed)?;
                    people.extend(listed.people.iter().map(view));
                    page_token = listed.next_page_token;
                    if page_token.is_empty() {
                        return screen.list(&COLUMNS, people);
                    }
                }
            }
            Self::Disable { id } => set_state(client, screen, id, true).await,
            Self::Enable { id } => set_state(client, screen, id, false).await,
        }
    }
}

async fn set_state(
    client: &Client,
    screen: &Screen,
    id: String,
    disabled: bool,
) -> Result<(), Error> {
    let request = client.request(SetPersonStateRequest { id, disabled });
    let changed = client.answer(client.people().set_person_state(request).await)?;
    let sentence = if disabled { "disabled" } else { "enabled" };
    screen.done(sentence, &view(&changed.person.unwrap_or_default()))
}

fn view(person: &Person) -> Value {
    json!({
        "id": person.id,
        "name": person.name,
        "role": person.role,
        "issuer": person.issuer,
        "subject": person.subject,
        "created_at": time(person.created_at.as_ref()),
        "seen_at": time(person.seen_at.as_ref()),
        "disabled_at": time(person.disabled_at.as_ref()),
    })
}
