//! What a member reaches besides conversations and reminders: memories, files and requests for approval
//! that are their own, and nothing of another person.

use holdfast_directory::{Actor, NewKey, SignIn};
use holdfast_proto::gateway::v1::{
    self as pb, approvals_client::ApprovalsClient, files_client::FilesClient,
    memories_client::MemoriesClient, people_client::PeopleClient,
    schedules_client::SchedulesClient,
};
use holdfast_testkit::FakeIssuer;
use holdfast_types::TenantRole;
use secrecy::ExposeSecret as _;
use serde_json::json;
use tonic::{Code, Status};

use crate::{
    people::trust,
    world::{Tenant, World, message, until},
};

/// A world with a memory service, and its people: two members, a viewer and an owner.
struct People {
    world: World,
    anna: Tenant,
    ben: Tenant,
    viewer: Tenant,
    owner: Tenant,
    _issuer: FakeIssuer,
}

impl People {
    async fn start() -> Self {
        let issuer = FakeIssuer::start().await.unwrap();
        let url = issuer.url();
        let world = World::start_with_memory_and(|config| trust(config, &url)).await.unwrap();
        let of = |name: &str, role: &str| {
            world.anna.by(&issuer.token(json!({"sub": name, "org": "anna", "groups": [role]})))
        };
        let (anna, ben) = (of("1", "member"), of("2", "member"));
        let (viewer, owner) = (of("3", "viewer"), of("4", "owner"));
        Self { world, anna, ben, viewer, owner, _issuer: issuer }
    }

    async fn id(&self, person: &Tenant) -> String {
        let mut people = PeopleClient::new(self.world.channel().await.unwrap());
        let shown = people.get_person(person.request(pb::GetPersonRequest::default())).await;
        shown.unwrap().into_inner().person.unwrap().id
    }
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(!status.message().contains("  "), "{status}");
}

#[tokio::test]
async fn a_member_has_their_own_memories_and_no_others() {
    let people = People::start().await;
    let (anna, ben) = (&people.anna, &people.ben);
    let name = format!("person:{}", people.id(anna).await);
    let mut door = MemoriesClient::new(people.world.channel().await.unwrap());
    let save = |user: &str, text: &str| pb::SaveMemoryRequest {
        user: user.to_owned(),
        text: text.to_owned(),
        ..pb::SaveMemoryRequest::default()
    };

    let own = door.save_memory(anna.request(save("", "likes green tea"))).await.unwrap();
    let own = own.into_inner().id;
    door.save_memory(anna.request(save(&name, "has a dog"))).await.unwrap();
    let bens = door.save_memory(ben.request(save("", "likes coffee"))).await.unwrap();
    let bens = bens.into_inner().id;
    let everybodys = save("", "the office opens at nine");
    let everybodys = door.save_memory(people.owner.request(everybodys)).await.unwrap();
    let everybodys = everybodys.into_inner().id;

    let list = || pb::ListMemoriesRequest { limit: 100, ..pb::ListMemoriesRequest::default() };
    let of_anna = door.list_memories(anna.request(list())).await.unwrap().into_inner().memories;
    let users: Vec<&str> = of_anna.iter().map(|memory| memory.user.as_str()).collect();
    assert_eq!(users, [&*name, &*name]);
    let of_all = door.list_memories(people.viewer.request(list())).await.unwrap().into_inner();
    assert_eq!(of_all.memories.len(), 4);
    let search = |user: &str| pb::SearchMemoriesRequest {
        user: user.to_owned(),
        query: "likes coffee".to_owned(),
        ..pb::SearchMemoriesRequest::default()
    };
    let has_coffee = |found: &pb::FoundMemory| {
        found.memory.as_ref().is_some_and(|memory| memory.text.contains("coffee"))
    };
    let found = door.search_memories(anna.request(search(""))).await.unwrap().into_inner().found;
    assert!(found.iter().all(|found| !has_coffee(found)), "{found:?}");
    let found = door.search_memories(ben.request(search(""))).await.unwrap().into_inner().found;
    assert!(found.iter().any(has_coffee), "{found:?}");

    // Ben names Anna, or what is hers, or what is everybody's.
    let of_user = pb::ListMemoriesRequest { user: name.clone(), ..list() };
    refused(door.list_memories(ben.request(of_user)).await);
    refused(door.search_memories(ben.request(search(&name))).await);
    refused(door.save_memory(ben.request(save(&name, "owes Ben money"))).await);
    let value = pb::SetMemoryValueRequest {
        user: name.clone(),
        key: "debt".to_owned(),
        value: "100".to_owned(),
        ..pb::SetMemoryValueRequest::default()
    };
    refused(door.set_memory_value(ben.request(value)).await);
    let get = pb::GetMemoryValueRequest {
        user: name.clone(),
        key: "debt".to_owned(),
        ..pb::GetMemoryValueRequest::default()
    };
    refused(door.get_memory_value(ben.request(get)).await);
    let forget = |id: &str| pb::ForgetMemoryRequest { id: id.to_owned() };
    for others in [&own, &everybodys] {
        refused(door.forget_memory(ben.request(forget(others))).await);
        let replaces = pb::SaveMemoryRequest { replaces: others.clone(), ..save("", "nothing") };
        let missing = door.save_memory(ben.request(replaces)).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{missing}");
    }
    refused(door.forget_memory(people.viewer.request(forget(&bens))).await);

    door.forget_memory(ben.request(forget(&bens))).await.unwrap();
    let left = door.list_memories(people.owner.request(list())).await.unwrap().into_inner();
    assert_eq!(left.memories.len(), 3);
}

#[tokio::test]
async fn a_member_sees_their_own_files_and_the_common_ones() {
    let people = People::start().await;
    let (anna, ben, owner) = (&people.anna, &people.ben, &people.owner);
    let folder = format!("people/person={}", people.id(anna).await);
    let mut door = FilesClient::new(people.world.channel().await.unwrap());
    let write = |path: &str, content: &str| pb::WriteFileRequest {
        path: path.to_owned(),
        content: content.as_bytes().to_vec(),
        ..pb::WriteFileRequest::default()
    };
    let read = |path: &str| pb::ReadFileRequest {
        path: path.to_owned(),
        ..pb::ReadFileRequest::default()
    };

    door.write_file(anna.request(write("trip/plan.md", "to the sea"))).await.unwrap();
    door.write_file(owner.request(write("shared/map.md", "a map"))).await.unwrap();
    door.write_file(owner.request(write("budget.md", "a secret"))).await.unwrap();
    door.write_file(owner.request(write("MEMORY.md", "about the owner"))).await.unwrap();

    let plan = door.read_file(anna.request(read("trip/plan.md"))).await.unwrap().into_inner();
    assert_eq!(plan.content, b"to the sea");
    let stored = door.read_file(owner.request(read(&format!("{folder}/trip/plan.md")))).await;
    assert_eq!(stored.unwrap().into_inner().content, b"to the sea");
    let list = |path: &str| pb::ListFilesRequest {
        path: path.to_owned(),
        ..pb::ListFilesRequest::default()
    };
    let mut paths = async |who: &Tenant, within: &str| {
        let listed = door.list_files(who.request(list(within))).await.unwrap().into_inner();
        listed.files.into_iter().map(|file| file.path).collect::<Vec<_>>()
    };
    let of_anna = paths(anna, "").await;
    assert!(of_anna.contains(&"trip/plan.md".to_owned()), "{of_anna:?}");
    assert!(of_anna.contains(&"shared/map.md".to_owned()), "{of_anna:?}");
    let of_ben = paths(ben, "").await;
    for (hidden, seen_by) in
        [("plan.md", &of_ben), ("budget.md", &of_anna), ("MEMORY.md", &of_anna)]
    {
        assert!(!seen_by.iter().any(|path| path.ends_with(hidden)), "{seen_by:?}");
    }
    assert_eq!(paths(anna, "trip").await, ["trip/plan.md"]);
    assert_eq!(paths(ben, &folder).await, [""; 0]);

    for path in ["trip/plan.md", "budget.md", &format!("{folder}/trip/plan.md")] {
        let missing = door.read_file(ben.request(read(path))).await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound, "{path}: {missing}");
    }
    refused(door.read_file(ben.request(read("MEMORY.md"))).await);
    let attachment = |hash: &str| pb::ReadAttachmentRequest {
        hash: hash.to_owned(),
        ..pb::ReadAttachmentRequest::default()
    };
    let own = door.read_attachment(anna.request(attachment(&plan.hash))).await.unwrap();
    assert_eq!(own.into_inner().content, b"to the sea");
    let missing = door.read_attachment(ben.request(attachment(&plan.hash))).await.unwrap_err();
    assert_eq!(missing.code(), Code::NotFound);
    for path in ["shared/map.md", "skills/x/SKILL.md", "SOUL.md", "memory/2026-01-01.md"] {
        refused(door.write_file(anna.request(write(path, "mine"))).await);
        let delete =
            pb::DeleteFileRequest { path: path.to_owned(), ..pb::DeleteFileRequest::default() };
        refused(door.delete_file(anna.request(delete)).await);
    }
    refused(door.write_file(people.viewer.request(write("a.md", "mine"))).await);
    let program = people.world.key(&people.world.anna, &["chat"], None).await.unwrap();
    let program = people.world.anna.by(&program);
    refused(door.write_file(program.request(write("a.md", "mine"))).await);

    // What Ben writes under Anna's path is in his own folder.
    let inner = format!("{folder}/trip/plan.md");
    door.write_file(ben.request(write(&inner, "changed"))).await.unwrap();
    let plan = door.read_file(anna.request(read("trip/plan.md"))).await.unwrap().into_inner();
    assert_eq!(plan.content, b"to the sea");
}

#[tokio::test]
async fn a_member_sees_what_waits_in_their_conversations_and_does_not_decide() {
    let people = People::start().await;
    let (anna, ben) = (&people.anna, &people.ben);
    let mut door = ApprovalsClient::new(people.world.channel().await.unwrap());
    let accepted = people.world.send(anna, message("ask me")).await.unwrap();
    let list = || pb::ListApprovalsRequest { state: "pending".into(), ..Default::default() };

    let waits = until(async || {
        let mut door = door.clone();
        let listed = door.list_approvals(anna.request(list())).await.unwrap().into_inner();
        listed.approvals.into_iter().next()
    });
    let waits = waits.await;

    assert_eq!(waits.session_id, accepted.session_id);
    assert_eq!(waits.summary, "ask me");
    let get = || pb::GetApprovalRequest { approval: waits.id.clone() };
    door.get_approval(anna.request(get())).await.unwrap();
    let decide = || pb::ResolveApprovalRequest {
        approval: waits.id.clone(),
        decision: pb::Decision::AllowOnce.into(),
        ..Default::default()
    };
    refused(door.resolve_approval(anna.request(decide())).await);
    let of_ben = door.list_approvals(ben.request(list())).await.unwrap().into_inner();
    assert_eq!(of_ben.approvals, []);
    refused(door.get_approval(ben.request(get())).await);
    let in_session = pb::ListApprovalsRequest { session_id: waits.session_id.clone(), ..list() };
    refused(door.list_approvals(ben.request(in_session)).await);
    let of_all = door.list_approvals(people.viewer.request(list())).await.unwrap().into_inner();
    assert_eq!(of_all.approvals.len(), 1);

    let of = |person: &str| pb::ListApprovalsRequest { person: person.to_owned(), ..list() };
    let (annas, bens) = (people.id(anna).await, people.id(ben).await);
    let found = door.list_approvals(people.viewer.request(of(&annas))).await.unwrap().into_inner();
    assert_eq!(found.approvals.len(), 1);
    let found = door.list_approvals(people.viewer.request(of(&bens))).await.unwrap().into_inner();
    assert_eq!(found.approvals, []);
    refused(door.list_approvals(ben.request(of(&annas))).await);

    // What a subagent of the conversation asks for is seen with it.
    let moved = "
        with worker as (
            insert into session.sessions (tenant_id, session_id, key, kind, agent_id, parent_id)
            select tenant_id, gen_random_uuid(), 'agent:main:subagent:x', 'subagent', agent_id,
                   session_id
            from session.sessions where session_id = (select session_id from session.approvals)
            returning session_id)
        update session.approvals set session_id = (select session_id from worker)
        returning tool";
    assert_eq!(people.world.texts(moved).await.unwrap(), ["launch"]);
    let found = door.list_approvals(anna.request(list())).await.unwrap().into_inner();
    assert_eq!(found.approvals.len(), 1);
    let found = door.list_approvals(ben.request(list())).await.unwrap().into_inner();
    assert_eq!(found.approvals, []);
}

#[tokio::test]
async fn people_change_their_own_record_and_owners_those_of_others() {
    let people = People::start().await;
    let (anna, owner) = (&people.anna, &people.owner);
    let mut door = PeopleClient::new(people.world.channel().await.unwrap());
    let mut schedules = SchedulesClient::new(people.world.channel().await.unwrap());
    let word = |text: &str| Some(text.to_owned());
    let mut update = async |by: &Tenant, changes: pb::UpdatePersonRequest| {
        let answer = door.update_person(by.request(changes)).await;
        answer.map(|answer| answer.into_inner().person.unwrap_or_default())
    };
    // Somebody who was invited, and a key of theirs.
    let said = SignIn {
        tenant: people.world.anna.id.to_string(),
        issuer: "invitation".to_owned(),
        subject: "carl".to_owned(),
        name: "Carl".to_owned(),
        role: TenantRole::Member,
    };
    let carl = people.world.directory.people().sign_in(&said).await.unwrap().person;
    let scopes = ["chat", "read", "approve"].map(str::to_owned).to_vec();
    let key = NewKey {
        name: "carl".to_owned(),
        scopes,
        lifetime: None,
        person: Some(carl),
        agent: None,
        origins: Vec::new(),
    };
    let keys = people.world.directory.keys();
    let made = keys.create(people.world.anna.id, Actor::Operator, key).await;
    let key = people.world.anna.by(made.unwrap().1.expose_secret());
    let carls = |changes| pb::UpdatePersonRequest { id: carl.to_string(), ..changes };
    let nothing = pb::UpdatePersonRequest::default;
    let mut approvals = ApprovalsClient::new(people.world.channel().await.unwrap());
    let mut decide = async || {
        let decision = pb::Decision::AllowOnce.into();
        let approval = "1a2b3c4d".to_owned();
        let request = pb::ResolveApprovalRequest { approval, decision, ..Default::default() };
        approvals.resolve_approval(key.request(request)).await.unwrap_err().code()
    };

    // What is not named stays, and an empty word removes.
    let zone = pb::UpdatePersonRequest { time_zone: word("Europe/Oslo"), ..nothing() };
    assert_eq!(update(anna, zone).await.unwrap().time_zone, "Europe/Oslo");
    let language = pb::UpdatePersonRequest { language: word("nb"), ..nothing() };
    let record = update(anna, language).await.unwrap();
    assert_eq!((record.time_zone.as_str(), record.language.as_str()), ("Europe/Oslo", "nb"));
    let reminder = pb::AddReminderRequest {
        time: "2036-01-10 09:00".to_owned(),
        content: "stretch".to_owned(),
        ..pb::AddReminderRequest::default()
    };
    let set = schedules.add_reminder(anna.request(reminder)).await.unwrap().into_inner();
    let at = set.reminder.unwrap().at.unwrap();
    assert_eq!(at.seconds, 2_083_564_800, "9:00 in Oslo");
    let none = pb::UpdatePersonRequest { time_zone: word(""), ..nothing() };
    let record = update(anna, none).await.unwrap();
    assert_eq!((record.time_zone.as_str(), record.language.as_str()), ("", "nb"));

    for (by, changes, told) in [
        (anna, pb::UpdatePersonRequest { time_zone: word("Mars/Base"), ..nothing() }, "Mars/Base"),
        (anna, pb::UpdatePersonRequest { language: word("nb. Obey"), ..nothing() }, "BCP 47"),
        (anna, pb::UpdatePersonRequest { name: word("Queen"), ..nothing() }, "change them there"),
        (owner, pb::UpdatePersonRequest { role: word("member"), ..nothing() }, "another owner"),
        (owner, carls(pb::UpdatePersonRequest { role: word("king"), ..nothing() }), "king"),
        (owner, carls(pb::UpdatePersonRequest { name: word(" "), ..nothing() }), "1 to 200"),
    ] {
        let status = update(by, changes).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().contains(told), "{status}");
    }
    refused(update(anna, carls(pb::UpdatePersonRequest { name: word("C"), ..nothing() })).await);
    refused(update(&key, pb::UpdatePersonRequest { role: word("owner"), ..nothing() }).await);

    // A role holds for keys of the person at once.
    assert_eq!(decide().await, Code::PermissionDenied);
    let role = pb::UpdatePersonRequest { role: word("approver"), name: word("Carla"), ..nothing() };
    let record = update(owner, carls(role)).await.unwrap();
    assert_eq!((record.role.as_str(), record.name.as_str()), ("approver", "Carla"));
    assert_eq!(decide().await, Code::NotFound);
}
