//! One tenant tries to reach another's data with every call of every API.
//!
//! The calls are listed in `table`. They are compared with the protos' descriptors and
//! `src/http.rs`: a call without a row fails a test. Another tenant's data must be answered like
//! data that never existed, word for word.

mod http;
pub mod raw;
mod table;
mod things;

use std::collections::BTreeSet;

use holdfast_proto::DESCRIPTORS;
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tonic::{Code, Status};

use crate::world::World;

pub use self::things::Things;
use self::{
    raw::call,
    table::{Is, Row, table},
    things::shown,
};

#[test]
fn every_call_of_the_contracts_is_in_the_table() {
    let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap().file;
    let mut there = BTreeSet::new();
    for file in &files {
        for service in &file.service {
            let methods = service.method.iter();
            there.extend(methods.map(|method| format!("{}/{}", service.name(), method.name())));
        }
    }

    let tried: BTreeSet<String> = table().iter().map(|row| row.method.to_owned()).collect();

    assert!(there.len() > 40, "the description has only {there:?}");
    assert_eq!(tried, there, "each call needs a row of the table, and each row a call");
}

#[tokio::test]
async fn nothing_of_another_tenant_is_found_listed_or_changed_by_any_call() {
    let world = World::start_with_memory().await.unwrap();
    let annas = Things::of_anna(&world).await.unwrap();
    let nobodys = Things::of_nobody();
    let table = table();
    let before = looks(&world, &table, &annas).await;

    // First: Ben's audit log names afterwards what he has asked for.
    for row in table.iter().filter(|row| row.is == Is::Shown) {
        let answer = call(&world, &world.ben, row.method, (row.ask)(&annas)).await.unwrap();

        annas.assert_absent(row.method, &shown(&answer));
    }
    for row in table.iter().filter(|row| row.is == Is::Found) {
        let foreign = call(&world, &world.ben, row.method, (row.ask)(&annas)).await;
        let never = call(&world, &world.ben, row.method, (row.ask)(&nobodys)).await;

        let foreign = refused(row, foreign);
        assert_eq!(foreign.code(), Code::NotFound, "{}: {}", row.method, foreign.message());
        let (foreign, never) = (annas.masked(foreign.message()), refused(row, never));
        assert_eq!(foreign, nobodys.masked(never.message()), "{} tells them apart", row.method);
    }
    for row in table.iter().filter(|row| row.is == Is::Gone) {
        let foreign = call(&world, &world.ben, row.method, (row.ask)(&annas)).await.unwrap();
        let never = call(&world, &world.ben, row.method, (row.ask)(&nobodys)).await.unwrap();

        assert_eq!(foreign, never, "{} tells them apart", row.method);
    }
    for row in table.iter().filter(|row| row.is == Is::Closed) {
        let answer = call(&world, &world.ben, row.method, (row.ask)(&annas)).await;

        assert_eq!(refused(row, answer).code(), Code::PermissionDenied, "{}", row.method);
    }
    for row in table.iter().filter(|row| row.is == Is::Personal) {
        let answer = call(&world, &world.ben, row.method, (row.ask)(&annas)).await;

        assert_eq!(refused(row, answer).code(), Code::InvalidArgument, "{}", row.method);
    }
    // Names and keys are unique per tenant: the same ones create Ben's own.
    for row in table.iter().filter(|row| row.is == Is::Made) {
        let answer = call(&world, &world.ben, row.method, (row.ask)(&annas)).await;

        let answer = answer.unwrap_or_else(|status| panic!("{}: {status}", row.method));
        annas.assert_others(row.method, &shown(&answer));
    }

    assert_eq!(looks(&world, &table, &annas).await, before);
}

/// Checks that nothing above was refused for another reason.
#[tokio::test]
async fn its_own_tenant_finds_all_of_it() {
    let world = World::start_with_memory().await.unwrap();
    let annas = Things::of_anna(&world).await.unwrap();
    let table = table();

    for row in table.iter().filter(|row| row.is == Is::Shown) {
        let answer = call(&world, &world.anna, row.method, (row.ask)(&annas)).await.unwrap();
        let answer = shown(&answer);

        assert!(answer.contains("anna"), "{} shows nothing: {answer}", row.method);
    }
    let ends = |row: &&Row| {
        let verb = row.method.rsplit('/').next().unwrap();
        ["Delete", "Revoke", "Forget", "Remove"].iter().any(|end| verb.starts_with(end))
    };
    let found = table.iter().filter(|row| matches!(row.is, Is::Found | Is::Gone));
    let (last, first): (Vec<&Row>, Vec<&Row>) = found.partition(ends);
    let mut ended = BTreeSet::new();
    // Things deleted by id are not found by name any more, nor is their content.
    let last = last.into_iter().rev().filter(|row| ended.insert(row.method));
    for row in first.into_iter().chain(last) {
        let answer = call(&world, &world.anna, row.method, (row.ask)(&annas)).await;

        let code = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        let is_there = matches!(code, Code::Ok | Code::FailedPrecondition | Code::Aborted);
        assert!(is_there, "{}: {code:?}", row.method);
    }
}

/// Everything that Anna can read. The bytes are sorted: a map has no order.
async fn looks(world: &World, table: &[Row], annas: &Things) -> Vec<(&'static str, Vec<u8>)> {
    let mut looks = Vec::new();
    for row in table.iter().filter(|row| row.is == Is::Shown) {
        let answer = call(world, &world.anna, row.method, (row.ask)(annas)).await.unwrap();
        let mut bytes = answer.concat();
        bytes.sort_unstable();
        looks.push((row.method, bytes));
    }
    looks
}

fn refused(row: &Row, answer: Result<Vec<Vec<u8>>, Status>) -> Status {
    match answer {
        Err(status) => status,
        Ok(answer) => panic!("{} answered: {}", row.method, shown(&answer)),
    }
}
