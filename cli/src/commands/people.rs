//! `holdfast people`.

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    Invitation, InvitePersonRequest, ListInvitationsRequest, ListPeopleRequest, Person,
    RevokeInvitationRequest, SetPersonStateRequest,
};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use serde_json::{Value, json};

use crate::{client::Client, error::Error, screen::Screen, view::time};

const INVITATION_COLUMNS: [&str; 5] = ["id", "name", "role", "inviter", "expires_at"];
const COLUMNS: [&str; 6] = ["id", "name", "role", "subject", "seen_at", "disabled_at"];
/// People per request.
const PAGE_SIZE: u32 = 200;

#[derive(Debug, Subcommand)]
pub enum People {
    /// List people
    List,
    /// Invite a person: prints a link with which they sign in first, once, within three days
    Invite {
        /// Name of the person
        name: String,
        /// Role that the person gets; an owner gives any, an operator those below
        #[arg(long, default_value = "member")]
        role: String,
        /// Print the text of a mail with the link
        #[arg(long)]
        mail: bool,
    },
    /// List the invitations that were not accepted
    Invitations,
    /// Revoke an invitation
    Revoke {
        /// Id of the invitation, as `invitations` shows it
        id: String,
    },
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
            Self::Invite { name, role, mail } => {
                let request = client.request(InvitePersonRequest { name, role });
                let made = client.answer(client.console().invite_person(request).await)?;
                let mut shown = invitation_view(&made.invitation.clone().unwrap_or_default());
                shown["url"] = made.url.clone().into();
                if screen.is_json() {
                    return screen.one(&["url"], &shown);
                }
                if mail {
                    return screen
                        .print(&mail_text(&made.invitation.unwrap_or_default(), &made.url));
                }
                screen.one(&["url", "id", "name", "role"], &shown)?;
                screen.print(&qr_code(&made.url))?;
                screen.note("Whoever opens the link first is this person. It is not shown again.")
            }
            Self::Invitations => {
                let request = client.request(ListInvitationsRequest {});
                let listed = client.answer(client.console().list_invitations(request).await)?;
                let rows = listed.invitations.iter().map(invitation_view).collect();
                screen.list(&INVITATION_COLUMNS, rows)
            }
            Self::Revoke { id } => {
                let request = client.request(RevokeInvitationRequest { id: id.clone() });
                client.answer(client.console().revoke_invitation(request).await)?;
                screen.done("revoked", &json!({ "revoked": id }))
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

fn invitation_view(invitation: &Invitation) -> Value {
    json!({
        "id": invitation.id,
        "name": invitation.name,
        "role": invitation.role,
        "inviter": invitation.inviter,
        "invited_by": invitation.invited_by,
        "created_at": time(invitation.created_at.as_ref()),
        "expires_at": time(invitation.expires_at.as_ref()),
    })
}

/// Text of a mail that invites a person.
fn mail_text(invitation: &Invitation, url: &str) -> String {
    let until = time(invitation.expires_at.as_ref());
    let until = until.as_str().unwrap_or_default();
    format!(
        "Subject: Your access to Holdfast

Hello {},

open this link to sign in for the first time:

  {url}

It works once, until {until}. Do not pass it on: whoever opens it first acts in your name.
",
        invitation.name
    )
}

/// A QR code for a terminal: two rows of squares in each line. Empty if the text is too long for one.
fn qr_code(text: &str) -> String {
    let code = QrCode::with_error_correction_level(text, EcLevel::L);
    code.map(|code| format!("{}\n", code.render::<Dense1x2>().build())).unwrap_or_default()
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
        "invited_by": person.invited_by,
        "disabled_at": time(person.disabled_at.as_ref()),
    })
}
