//! A gateway that is stopping accepts nothing new, and finishes open calls.

use std::time::Duration;

use futures::StreamExt as _;
use tonic::Code;

use crate::world::{PATIENCE, World, done, message};

#[tokio::test]
async fn what_is_open_is_finished_and_nothing_new_is_taken() {
    let world = World::start_with(|config| config.gateway.shutdown_grace = PATIENCE);
    let mut world = world.await.unwrap();
    let mut client = world.messages().await.unwrap();
    let stream = client.stream(world.anna.request(message("hold on")));
    let mut stream = stream.await.unwrap().into_inner();
    stream.next().await.unwrap().unwrap();

    world.stop.cancel();
    let refused = async {
        while world.messages().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    world.runner.release(1);
    let events: Vec<_> = stream.map(Result::unwrap).collect().await;

    assert_eq!(done(&events).text, "echo: hold on");
    world.served.take().unwrap().await.unwrap().unwrap();
}

#[tokio::test]
async fn who_follows_for_longer_than_there_is_time_is_told_to_come_again() {
    let world = World::start_with(|config| {
        config.gateway.shutdown_grace = Duration::from_millis(1200);
    });
    let mut world = world.await.unwrap();
    let mut client = world.messages().await.unwrap();
    let stream = client.stream(world.anna.request(message("hold on")));
    let mut stream = stream.await.unwrap().into_inner();

    world.stop.cancel();
    let end = loop {
        match stream.next().await.unwrap() {
            Ok(_) => {}
            Err(status) => break status,
        }
    };

    assert_eq!(end.code(), Code::Unavailable);
    assert!(end.message().contains("can be followed"), "{}", end.message());
    world.served.take().unwrap().await.unwrap().unwrap();
    world.runner.release(1);
}
