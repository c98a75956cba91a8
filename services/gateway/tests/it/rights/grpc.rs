//! Methods of gRPC, and the tools of the MCP server.

use std::collections::BTreeSet;

use holdfast_proto::{DESCRIPTORS, gateway::v1 as pb};
use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};
use tonic::{Code, Status};

use super::{
    callers::{Caller, Setting},
    matrix::{self, Cell, Row, yes_or_no},
    objects::{Object, Part},
    unaffected,
};
use crate::{foreign::raw::call, world::World};

/// What has to be made anew after a call was allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Nothing,
    Conversation,
    Memory,
    Devices,
    /// The call names something that need not exist: the right is checked first.
    MayBeMissing,
}

/// A method, what it names, and a request with that.
type Door = (&'static str, Part, After, fn(&str) -> Vec<u8>);

fn bytes(message: impl Message) -> Vec<u8> {
    message.encode_to_vec()
}

fn send(session: &str) -> Vec<u8> {
    let (session, text) = (session.to_owned(), "hello".to_owned());
    bytes(pb::SendRequest { session, text, ..Default::default() })
}

/// All methods that name or list what may be somebody's. Those that destroy it are last.
fn doors() -> Vec<Door> {
    [lists(), conversations(), work(), runs(), people(), persons(), talking(), ends()].concat()
}

fn persons() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("People/UpdatePerson", Part::Person, none, |person| {
            let time_zone = Some("Europe/Oslo".to_owned());
            bytes(pb::UpdatePersonRequest {
                id: person.to_owned(),
                time_zone,
                ..Default::default()
            })
        }),
        ("People/GetPerson", Part::Person, none, |person| {
            bytes(pb::GetPersonRequest { id: person.to_owned() })
        }),
        ("People/SplitPerson", Part::Person, After::MayBeMissing, |person| {
            let (person, identity) = (person.to_owned(), "api:nobody".to_owned());
            bytes(pb::SplitPersonRequest { person, identity })
        }),
        ("People/LinkProgramUser", Part::Person, none, |person| {
            let (person, user) = (person.to_owned(), format!("user-of-{person}"));
            bytes(pb::LinkProgramUserRequest { person, user })
        }),
        ("People/MergePeople", Part::Person, After::MayBeMissing, |person| {
            let (from, into) = (person.to_owned(), format!("per_{}", "0".repeat(32)));
            bytes(pb::MergePeopleRequest { from, into })
        }),
    ]
}

fn lists() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Sessions/ListSessions", Part::List, none, |_| {
            bytes(pb::ListSessionsRequest { limit: 200, ..Default::default() })
        }),
        ("Sessions/ListRuns", Part::List, none, |_| {
            bytes(pb::ListRunsRequest { limit: 200, ..Default::default() })
        }),
        ("Sessions/SearchMessages", Part::List, none, |_| {
            let query = "say mark".to_owned();
            bytes(pb::SearchMessagesRequest { query, limit: 100, ..Default::default() })
        }),
        ("Subagents/ListSubagents", Part::List, none, |_| {
            bytes(pb::ListSubagentsRequest { limit: 100, ..Default::default() })
        }),
        ("Operations/ListDeadLetters", Part::List, none, |_| {
            bytes(pb::ListDeadLettersRequest { limit: 100, ..Default::default() })
        }),
        ("Memories/ListMemories", Part::List, none, |_| {
            bytes(pb::ListMemoriesRequest { limit: 100, ..Default::default() })
        }),
        ("Events/Subscribe", Part::List, none, |_| {
            bytes(pb::SubscribeRequest {
                start: pb::EventStart::Earliest.into(),
                end_at_newest: true,
                ..Default::default()
            })
        }),
        ("Devices/ListDevices", Part::List, none, |_| bytes(pb::ListDevicesRequest {})),
        ("People/ListPeople", Part::List, none, |_| {
            bytes(pb::ListPeopleRequest { limit: 200, ..Default::default() })
        }),
    ]
}

fn conversations() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Sessions/GetSession", Part::Session, none, |session| {
            bytes(pb::GetSessionRequest { session: session.to_owned() })
        }),
        ("Sessions/GetSession – of a subagent", Part::Subagent, none, |session| {
            bytes(pb::GetSessionRequest { session: session.to_owned() })
        }),
        ("Sessions/GetHistory", Part::Session, none, |session| {
            bytes(pb::GetHistoryRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Sessions/ExportSession", Part::Session, none, |session| {
            bytes(pb::ExportSessionRequest { session: session.to_owned() })
        }),
        ("Sessions/ListRuns", Part::Session, none, |session| {
            bytes(pb::ListRunsRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Sessions/SearchMessages", Part::Session, none, |session| {
            let (session, query) = (session.to_owned(), "mark".to_owned());
            bytes(pb::SearchMessagesRequest { session, query, ..Default::default() })
        }),
        ("Sessions/ListBranches", Part::Session, none, |session| {
            bytes(pb::ListBranchesRequest { session: session.to_owned() })
        }),
        ("Sessions/GetCanvas", Part::Session, none, |session| {
            bytes(pb::GetCanvasRequest { session: session.to_owned() })
        }),
        ("Sessions/ListToolCalls", Part::Session, none, |session| {
            bytes(pb::ListToolCallsRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Sessions/UpdateSession", Part::Session, none, |session| {
            let (session, pinned) = (session.to_owned(), Some(true));
            bytes(pb::UpdateSessionRequest { session, pinned, ..Default::default() })
        }),
        ("Sessions/PauseSession", Part::Session, none, |session| {
            bytes(pb::PauseSessionRequest { session: session.to_owned() })
        }),
        ("Sessions/ResumeSession", Part::Session, none, |session| {
            bytes(pb::ResumeSessionRequest { session: session.to_owned() })
        }),
        // There is one already.
        ("Sessions/ImportSession", Part::Key, none, |session| {
            let (agent, session) = (String::new(), session.to_owned());
            let target = pb::ImportTarget { agent, session };
            let part = Some(pb::import_session_request::Part::Target(target));
            bytes(pb::ImportSessionRequest { part })
        }),
        ("Sessions/RollBackStep", Part::Session, After::MayBeMissing, |session| {
            let (session, dry_run) = (session.to_owned(), true);
            bytes(pb::RollBackStepRequest { session, dry_run, ..Default::default() })
        }),
        ("Policies/ExplainTools", Part::Session, none, |session| {
            bytes(pb::ExplainToolsRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Behaviors/TryBehavior", Part::Session, none, |session| {
            let (name, session) = ("plan".to_owned(), session.to_owned());
            let (messages, answers) = (vec!["go".to_owned()], vec!["{}".to_owned()]);
            bytes(pb::TryBehaviorRequest { name, session, messages, answers, ..Default::default() })
        }),
        ("Workspaces/BindWorkspace", Part::Session, none, |session| {
            bytes(pb::BindWorkspaceRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Operations/ListDeliveries", Part::Session, none, |session| {
            bytes(pb::ListDeliveriesRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Operations/ListDeadLetters", Part::Session, none, |session| {
            bytes(pb::ListDeadLettersRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Events/Subscribe", Part::SessionId, none, |session| {
            let session = session.to_owned();
            let filter = Some(pb::EventFilter { session, ..Default::default() });
            bytes(pb::SubscribeRequest { filter, end_at_newest: true, ..Default::default() })
        }),
    ]
}

/// Todos, tasks and subagents of a conversation.
fn work() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Work/ApplyTodos", Part::Session, none, |session| {
            let operations = r#"[{"op": "init", "mode": "merge", "items": [{"title": "go"}]}]"#;
            let (session, operations) = (session.to_owned(), operations.to_owned());
            bytes(pb::ApplyTodosRequest { session, operations, request_id: String::new() })
        }),
        ("Work/ListTodos", Part::Session, none, |session| {
            bytes(pb::ListTodosRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Work/GetTodo", Part::Session, After::MayBeMissing, |session| {
            let (session, code) = (session.to_owned(), "T001".to_owned());
            bytes(pb::GetTodoRequest { session, code })
        }),
        ("Work/GetTodoView", Part::Session, none, |session| {
            bytes(pb::GetTodoViewRequest { session: session.to_owned(), budget_tokens: 0 })
        }),
        ("Work/ListWorklog", Part::Session, none, |session| {
            bytes(pb::ListWorklogRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Work/GetTaskTree", Part::Session, none, |session| {
            bytes(pb::GetTaskTreeRequest { session: session.to_owned(), steps: 0 })
        }),
        ("Work/ListLedger", Part::Session, none, |session| {
            bytes(pb::ListLedgerRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Subagents/ListSubagents", Part::Session, none, |session| {
            bytes(pb::ListSubagentsRequest { session: session.to_owned(), ..Default::default() })
        }),
        // They have ended.
        ("Subagents/SendToSubagent", Part::Subagent, none, |session| {
            let (session, text) = (session.to_owned(), "go".to_owned());
            bytes(pb::SendToSubagentRequest { session, text, ..Default::default() })
        }),
        ("Subagents/StopSubagent", Part::Subagent, none, |session| {
            bytes(pb::StopSubagentRequest { session: session.to_owned() })
        }),
    ]
}

/// Turns, and the messages that began them.
fn runs() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Messages/Follow", Part::Message, none, |message| {
            bytes(pb::FollowRequest { message_id: message.to_owned() })
        }),
        ("Sessions/GetRun", Part::Run, none, |run| {
            bytes(pb::GetRunRequest { run_id: run.to_owned() })
        }),
        ("Sessions/ListToolCalls – of a run", Part::Run, none, |run| {
            bytes(pb::ListToolCallsRequest { run_id: run.to_owned(), ..Default::default() })
        }),
        ("Runs/GetRunTrace", Part::Run, none, |run| {
            bytes(pb::GetRunTraceRequest { run_id: run.to_owned(), ..Default::default() })
        }),
        ("Runs/RenderPrompt", Part::Run, none, |run| {
            bytes(pb::RenderPromptRequest { run_id: run.to_owned(), seq: 0 })
        }),
        ("Operations/GetDeadLetter", Part::DeadLetter, none, |message| {
            bytes(pb::GetDeadLetterRequest { message_id: message.to_owned() })
        }),
        ("Operations/RequeueDeadLetter", Part::DeadLetter, none, |message| {
            bytes(pb::RequeueDeadLetterRequest { message_id: message.to_owned() })
        }),
    ]
}

/// Reminders, memories, devices, and people themselves.
fn people() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Schedules/AddReminder", Part::User, none, |user| {
            let (user, time, content) = (user.to_owned(), "in 9 days".into(), "tea".into());
            bytes(pb::AddReminderRequest { user, time, content, ..Default::default() })
        }),
        ("Schedules/ListReminders", Part::User, none, |user| {
            bytes(pb::ListRemindersRequest { user: user.to_owned() })
        }),
        ("Schedules/CancelReminder", Part::User, After::MayBeMissing, |user| {
            bytes(pb::CancelReminderRequest { user: user.to_owned(), id: "reminder_0".into() })
        }),
        ("Memories/SearchMemories", Part::MemoryUser, none, |user| {
            let (user, query) = (user.to_owned(), "tea".into());
            bytes(pb::SearchMemoriesRequest { user, query, ..Default::default() })
        }),
        ("Memories/ListMemories", Part::MemoryUser, none, |user| {
            bytes(pb::ListMemoriesRequest { user: user.to_owned(), ..Default::default() })
        }),
        ("Memories/SaveMemory", Part::MemoryUser, none, |user| {
            let (user, text) = (user.to_owned(), "likes tea".into());
            bytes(pb::SaveMemoryRequest { user, text, ..Default::default() })
        }),
        ("Memories/SetMemoryValue", Part::MemoryUser, none, |user| {
            let (user, key, value) = (user.to_owned(), "tea".into(), "true".into());
            bytes(pb::SetMemoryValueRequest { user, key, value, ..Default::default() })
        }),
        ("Memories/GetMemoryValue", Part::MemoryUser, After::MayBeMissing, |user| {
            let (user, key) = (user.to_owned(), "tea".into());
            bytes(pb::GetMemoryValueRequest { user, key, ..Default::default() })
        }),
        ("People/SetPersonState", Part::Person, none, |person| {
            bytes(pb::SetPersonStateRequest { id: person.to_owned(), disabled: false })
        }),
        ("Keys/CreateKey – for a person", Part::Person, none, |person| {
            let (name, scopes) = ("theirs".to_owned(), vec!["guest".to_owned()]);
            let person = person.to_owned();
            bytes(pb::CreateKeyRequest {
                name,
                scopes,
                lifetime_seconds: 0,
                person,
                ..Default::default()
            })
        }),
        ("Devices/RotateDeviceToken", Part::Device, none, |device| {
            bytes(pb::RotateDeviceTokenRequest { device: device.to_owned(), scopes: Vec::new() })
        }),
        ("Devices/RevokeDeviceToken", Part::Device, none, |device| {
            bytes(pb::RevokeDeviceTokenRequest { device: device.to_owned() })
        }),
    ]
}

fn talking() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Messages/Send", Part::Session, none, send),
        ("Messages/Stream", Part::Session, none, send),
        ("Sessions/BranchSession", Part::Session, none, |session| {
            bytes(pb::BranchSessionRequest { session: session.to_owned(), ..Default::default() })
        }),
        ("Messages/Cancel", Part::Session, none, |session| {
            bytes(pb::CancelRequest { session: session.to_owned(), ..Default::default() })
        }),
    ]
}

fn ends() -> Vec<Door> {
    vec![
        ("Devices/ApproveDevice", Part::DeviceRequest, After::Devices, |request| {
            bytes(pb::ApproveDeviceRequest { request: request.to_owned() })
        }),
        ("Devices/RejectDevice", Part::DeviceRequest, After::Devices, |request| {
            bytes(pb::RejectDeviceRequest { request: request.to_owned() })
        }),
        ("Devices/RemoveDevice", Part::Device, After::Devices, |device| {
            bytes(pb::RemoveDeviceRequest { device: device.to_owned() })
        }),
        ("Memories/ForgetMemory", Part::Memory, After::Memory, |id| {
            bytes(pb::ForgetMemoryRequest { id: id.to_owned() })
        }),
        ("Memories/EraseMemories", Part::MemoryUser, After::Memory, |user| {
            bytes(pb::EraseMemoriesRequest { user: user.to_owned(), ..Default::default() })
        }),
        ("Sessions/DeleteSession", Part::Key, After::Conversation, |session| {
            bytes(pb::DeleteSessionRequest { session: session.to_owned() })
        }),
    ]
}

/// Calls about tool calls that wait. The conversations wait with them, so they are last.
fn approvals() -> Vec<Door> {
    let none = After::Nothing;
    vec![
        ("Approvals/ListApprovals", Part::List, none, |_| {
            bytes(pb::ListApprovalsRequest { limit: 100, ..Default::default() })
        }),
        ("Approvals/ListApprovals", Part::SessionId, none, |session| {
            let session_id = session.to_owned();
            bytes(pb::ListApprovalsRequest { session_id, ..Default::default() })
        }),
        ("Approvals/GetApproval", Part::Approval, none, |approval| {
            bytes(pb::GetApprovalRequest { approval: approval.to_owned() })
        }),
        ("Approvals/ResolveApproval", Part::Approval, none, |approval| {
            let (approval, decision) = (approval.to_owned(), pb::Decision::Deny.into());
            bytes(pb::ResolveApprovalRequest { approval, decision, ..Default::default() })
        }),
    ]
}

/// Name of a method, without what a row says about it.
fn method_of(&(name, ..): &Door) -> &str {
    name.split_once(" – ").map_or(name, |(method, _)| method)
}

fn methods() -> Vec<(String, MethodDescriptorProto)> {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let services = files.into_iter().flat_map(|file| file.service);
    let named = services.flat_map(|service| {
        let of = service.name().to_owned();
        service.method.into_iter().map(move |method| (format!("{of}/{}", method.name()), method))
    });
    named.collect()
}

#[test]
fn every_method_has_a_row_or_a_reason_for_none() {
    let (doors, approvals) = (doors(), approvals());
    let tried: BTreeSet<&str> = doors.iter().chain(&approvals).map(method_of).collect();
    let reasons = unaffected::names(unaffected::METHODS);
    let methods = methods();
    let known: BTreeSet<&str> = methods.iter().map(|(name, _)| name.as_str()).collect();

    let both: Vec<_> = tried.intersection(&reasons).collect();
    assert!(both.is_empty(), "{both:?}");
    assert_eq!(&tried | &reasons, known);
}

#[test]
fn a_method_whose_request_names_something_of_a_person_has_a_row() {
    const NAMES: [&str; 8] =
        ["session", "session_id", "run_id", "message_id", "user", "person", "device", "approval"];
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let reasons = unaffected::names(unaffected::METHODS);
    for (name, method) in methods() {
        let input = method.input_type().rsplit('.').next().unwrap();
        let messages = files.iter().flat_map(|file| &file.message_type);
        let request = messages.clone().find(|message| message.name() == input).unwrap();
        let named = request.field.iter().map(|field| field.name());
        let named: Vec<&str> = named.filter(|field| NAMES.contains(field)).collect();
        assert!(!reasons.contains(name.as_str()) || named.is_empty(), "{name}: {named:?}");
    }
}

/// Whether the caller lacks the right.
///
/// # Panics
///
/// If the request is wrong, so that the answer says nothing about rights.
fn is_refused(door: &Door, who: &str, answer: &Result<Vec<Vec<u8>>, Status>) -> bool {
    let Err(status) = answer else { return false };
    match status.code() {
        Code::PermissionDenied => true,
        // The right was checked, and the object is not in the state for it.
        Code::FailedPrecondition | Code::Aborted | Code::AlreadyExists => false,
        Code::NotFound if door.2 == After::MayBeMissing => false,
        // Those who do not read everything have to say what they want to read.
        Code::InvalidArgument if door.1 == Part::List => true,
        // Nobody begins a session of the mesh, or a branch of one.
        Code::InvalidArgument
            if ["only the mesh makes", "only conversations with"]
                .iter()
                .any(|begin| status.message().starts_with(begin)) =>
        {
            true
        }
        code => panic!("{} by {who}: {code:?} {}", door.0, status.message()),
    }
}

async fn restore(world: &World, object: &mut Object, after: After) {
    match after {
        After::Nothing | After::MayBeMissing => {}
        After::Conversation => object.begin(world).await,
        After::Memory => object.remember(world).await,
        After::Devices => object.pair_again(world).await,
    }
}

/// Calls a method on each object.
async fn try_objects(
    world: &World,
    caller: &Caller,
    door: &Door,
    objects: Vec<&mut Object>,
) -> String {
    let (method, (_, part, after, ask)) = (method_of(door), door);
    let mut cell = Cell::default();
    if *part == Part::List {
        let answer = call(world, &caller.access, method, ask("")).await;
        let refused = is_refused(door, &caller.name, &answer);
        let shown = match answer {
            Ok(answers) if !refused => String::from_utf8_lossy(&answers.concat()).into_owned(),
            Ok(_) | Err(_) => String::new(),
        };
        for object in objects.iter().filter(|object| object.is_listed_by(method)) {
            cell.add(object.letter, object.is_in(&shown));
        }
        return cell.shown();
    }
    for object in objects {
        if method == "Memories/ForgetMemory" {
            // Another caller whose it is, too, may have forgotten it.
            object.remember(world).await;
        }
        let mut outcomes = BTreeSet::new();
        for name in object.names(*part) {
            let answer = call(world, &caller.access, method, ask(name)).await;
            let who = format!("{} on {name}", caller.name);
            outcomes.insert(!is_refused(door, &who, &answer));
        }
        let Some(is_allowed) = outcomes.pop_first() else { continue };
        assert!(outcomes.is_empty(), "{method} of {}: id and key are told apart", object.key);
        cell.add(object.letter, is_allowed);
        if is_allowed {
            restore(world, object, *after).await;
        }
    }
    cell.shown()
}

/// Rows of these methods, for all callers.
async fn rows(setting: &mut Setting, doors: &[Door]) -> Vec<Row> {
    let Setting { world, callers, objects, .. } = setting;
    let mut rows = Vec::new();
    for door in doors {
        let mut cells = Vec::new();
        for caller in callers.iter_mut() {
            let mut own = caller.own.take();
            let all = own.iter_mut().chain(objects.all_mut()).collect();
            cells.push(try_objects(world, caller, door, all).await);
            caller.own = own;
        }
        let call = match door.1 == Part::List
            && doors.iter().filter(|other| other.0 == door.0).count() > 1
        {
            true => format!("{} – the whole list", door.0),
            false => door.0.to_owned(),
        };
        rows.push(Row { call, cells });
    }
    rows
}

#[tokio::test]
async fn methods_reach_what_the_page_says() {
    let mut setting = Setting::start().await;
    let mut all = rows(&mut setting, &doors()).await;
    let Setting { world, callers, objects, .. } = &mut setting;
    for object in objects.all_mut().chain(callers.iter_mut().filter_map(|it| it.own.as_mut())) {
        object.ask(world).await;
    }
    all.append(&mut rows(&mut setting, &approvals()).await);

    matrix::check("methods", &all);
}

#[tokio::test]
async fn methods_that_name_nothing_of_a_person_are_permitted_to_whom_the_page_says() {
    let setting = Setting::start().await;
    let mut all = Vec::new();
    for (_, methods) in unaffected::METHODS {
        for method in *methods {
            let mut cells = Vec::new();
            for caller in &setting.callers {
                let answer = call(&setting.world, &caller.access, method, Vec::new()).await;
                let refused = answer.is_err_and(|status| status.code() == Code::PermissionDenied);
                cells.push(yes_or_no(!refused));
            }
            all.push(Row { call: (*method).to_owned(), cells });
        }
    }

    matrix::check("other methods", &all);
}
