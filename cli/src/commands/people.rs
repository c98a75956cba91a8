//! `holdfast people`.

mod export;

use std::path::PathBuf;

use clap::Subcommand;
use holdfast_proto::gateway::v1::{
    AssignConversationsRequest, CreateLinkCodeRequest, ErasePersonRequest, GetPersonRequest,
    GetPersonResponse, Invitation, InvitePersonRequest, LinkProgramUserRequest,
    ListInvitationsRequest, ListPeopleRequest, MergePeopleRequest, Person, PersonIdentity,
    RevokeInvitationRequest, SetPersonStateRequest, SplitPersonRequest, UpdatePersonRequest,
};
use qrcode::{EcLevel, QrCode, render::unicode::Dense1x2};
use serde_json::{Value, json};

use crate::{
    client::Client, commands::knowledge::memory::counts, error::Error, screen::Screen, view::time,
};

const INVITATION_COLUMNS: [&str; 5] = ["id", "name", "role", "inviter", "expires_at"];
const COLUMNS: [&str; 6] = ["id", "name", "role", "subject", "seen_at", "disabled_at"];
/// Fields of a person at the top of `show`.
const PERSON_FIELDS: [&str; 10] = [
    "id",
    "name",
    "role",
    "time_zone",
    "language",
    "user",
    "identities",
    "merged_into",
    "seen_at",
    "disabled_at",
];
/// People per request.
const PAGE_SIZE: u32 = 200;

#[derive(Debug, Subcommand)]
pub enum People {
    /// List people
    List,
    /// Show a person, and by what they are known
    Show {
        /// Id of the person, as `list` shows it [default: yourself]
        #[arg(default_value = "", hide_default_value = true)]
        id: String,
    },
    /// Change a record, without an id your own: what is not named stays as it is
    ///
    /// Others' records and roles are for owners. An identity provider says the name and the role of the
    /// people who sign in there.
    Update {
        /// Id of the person, as `list` shows it [default: yourself]
        #[arg(default_value = "", hide_default_value = true)]
        id: String,
        /// Name, of 1 to 200 characters
        #[arg(long)]
        name: Option<String>,
        /// Time zone, as `Europe/Oslo`; "" is none
        #[arg(long)]
        time_zone: Option<String>,
        /// Language in which agents answer, as `nb` or `zh-CN`; "" is none
        #[arg(long)]
        language: Option<String>,
        /// guest, viewer, member, approver, operator or owner
        #[arg(long)]
        role: Option<String>,
    },
    /// Make an account on a channel yours: prints a code to send from there
    ///
    /// With a person and a user of programs, as `api:anna`: make that user the person.
    Link {
        /// Id of the person, as `list` shows it
        #[arg(requires = "user")]
        person: Option<String>,
        /// User whom programs name, as `api:anna`
        user: Option<String>,
    },
    /// Make two people one: what the first has is the second's from then on
    Merge {
        /// Id of the person who is the other one, too
        from: String,
        /// Id of the person who stays
        into: String,
    },
    /// Give conversations that the console of earlier versions made to the people who wrote in them
    ///
    /// Lists them, with the person, or why a conversation is nobody's.
    Assign {
        /// Do it; without, nothing is changed
        #[arg(long)]
        yes: bool,
    },
    /// Separate an account, a user of programs or a merged person from a person
    Split {
        /// Id of the person
        person: String,
        /// As `show` prints it: `telegram:42`, `api:anna`, or the id of the merged person
        identity: String,
    },
    /// Write everything of a person into a folder: record, conversations, memories, reminders, files
    Export {
        /// Id of the person
        id: String,
        /// Folder, which must not exist
        #[arg(long)]
        to: PathBuf,
    },
    /// Erase a person, everything they said, and what is remembered of them
    ///
    /// Prints the number of erased rows, and of the rows that are left, which is zero.
    Erase {
        /// Id of the person
        id: String,
        /// Confirm that it cannot be undone
        #[arg(long)]
        yes: bool,
    },
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
            Self::List => list(client, screen).await,
            Self::Show { id } => {
                let request = client.request(GetPersonRequest { id });
                let shown = client.answer(client.people().get_person(request).await)?;
                screen.one(&PERSON_FIELDS, &details(&shown))
            }
            Self::Update { id, name, time_zone, language, role } => {
                let changes = UpdatePersonRequest { id, name, time_zone, language, role };
                let changed = client.people().update_person(client.request(changes)).await;
                let changed = client.answer(changed)?;
                screen.done("updated", &view(&changed.person.unwrap_or_default()))
            }
            Self::Link { person: Some(person), user: Some(user) } => {
                link_user(client, screen, person, &user).await
            }
            Self::Link { .. } => {
                let request = client.request(CreateLinkCodeRequest {});
                let made = client.answer(client.people().create_link_code(request).await)?;
                let line = format!("/link {}", made.code);
                let expires_at = time(made.expires_at.as_ref());
                screen.one(
                    &["send", "expires_at"],
                    &json!({ "send": line, "expires_at": expires_at }),
                )?;
                screen.note(
                    "Send this to the assistant from the account that is yours. Show it to nobody: \
                     whoever sends it is you.",
                )
            }
            Self::Merge { from, into } => {
                let request = client.request(MergePeopleRequest { from, into });
                let merged = client.answer(client.people().merge_people(request).await)?;
                screen.done("merged", &view(&merged.person.unwrap_or_default()))?;
                note_files(screen, merged.files_stay)
            }
            Self::Split { person, identity } => {
                let shown = json!({ "person": person, "identity": identity });
                let request = client.request(SplitPersonRequest { person, identity });
                client.answer(client.people().split_person(request).await)?;
                screen.done("split", &shown)
            }
            Self::Assign { yes } => assign(client, screen, yes).await,
            Self::Export { id, to } => export::export(client, screen, id, &to).await,
            Self::Erase { id, yes } => erase(client, screen, id, yes).await,
            Self::Invite { name, role, mail } => invite(client, screen, (name, role), mail).await,
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

/// Prints all people.
async fn list(client: &Client, screen: &Screen) -> Result<(), Error> {
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

/// Invites a person, and prints the link.
async fn invite(
    client: &Client,
    screen: &Screen,
    (name, role): (String, String),
    mail: bool,
) -> Result<(), Error> {
    let request = client.request(InvitePersonRequest { name, role });
    let made = client.answer(client.console().invite_person(request).await)?;
    let mut shown = invitation_view(&made.invitation.clone().unwrap_or_default());
    shown["url"] = made.url.clone().into();
    if screen.is_json() {
        return screen.one(&["url"], &shown);
    }
    if mail {
        return screen.print(&mail_text(&made.invitation.unwrap_or_default(), &made.url));
    }
    screen.one(&["url", "id", "name", "role"], &shown)?;
    screen.print(&qr_code(&made.url))?;
    screen.note("Whoever opens the link first is this person. It is not shown again.")
}

/// Makes a user of programs a person.
async fn link_user(
    client: &Client,
    screen: &Screen,
    person: String,
    user: &str,
) -> Result<(), Error> {
    let Some(name) = user.strip_prefix("api:") else {
        return Err(Error::Usage(format!(
            "`{user}` is no user of programs: write `api:` before the name. An account \
             on a channel is linked by its person, with `holdfast people link`"
        )));
    };
    let request = LinkProgramUserRequest { person: person.clone(), user: name.to_owned() };
    let linked = client.people().link_program_user(client.request(request)).await;
    let stay = client.answer(linked)?.files_stay;
    screen.done("linked", &json!({ "person": person, "user": user }))?;
    note_files(screen, stay)
}

/// Gives conversations of the console of earlier versions to people, or lists them only.
async fn assign(client: &Client, screen: &Screen, yes: bool) -> Result<(), Error> {
    let (mut rows, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = AssignConversationsRequest { dry_run: !yes, page_token };
        let request = client.request(request);
        let page = client.people().assign_conversations(request).await;
        let page = client.answer(page)?;
        rows.extend(page.conversations.iter().map(|one| {
            let (session, key) = (&one.session, &one.key);
            json!({
                "session": session, "key": key,
                "person": one.person, "reason": one.reason,
            })
        }));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    if !yes && rows.iter().any(|row| row["person"] != "") {
        screen.note("Nothing is changed yet: add `--yes`.")?;
    }
    screen.list(&["session", "key", "person", "reason"], rows)
}

/// Erases a person.
async fn erase(client: &Client, screen: &Screen, id: String, yes: bool) -> Result<(), Error> {
    if !yes {
        return Err(Error::Usage(format!(
            "erasing {id} deletes their conversations, memories, files and keys, and \
             cannot be undone: add `--yes`"
        )));
    }
    let request = client.request(ErasePersonRequest { id });
    let erased = client.answer(client.people().erase_person(request).await)?;
    let (erased, left) = (counts(&erased.erased), counts(&erased.left));
    let shown = json!({ "erased": erased, "left": left });
    screen.one(&["erased", "left"], &shown)
}

/// Says that some files could not be moved.
fn note_files(screen: &Screen, stay: bool) -> Result<(), Error> {
    match stay {
        true => screen.note("Some files could not be moved, and stay where they were."),
        false => Ok(()),
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

/// A person with all that is known of them.
fn details(shown: &GetPersonResponse) -> Value {
    let mut row = view(&shown.person.clone().unwrap_or_default());
    row["user"] = shown.user.clone().into();
    row["folder"] = shown.folder.clone().into();
    row["merged_into"] = shown.merged_into.clone().into();
    let identity = |one: &PersonIdentity| {
        let proven_at = time(one.proven_at.as_ref());
        json!({ "kind": one.kind, "value": one.value, "proven_at": proven_at })
    };
    row["identities"] = shown.identities.iter().map(identity).collect();
    row
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
        "time_zone": person.time_zone,
        "language": person.language,
        "disabled_at": time(person.disabled_at.as_ref()),
    })
}
