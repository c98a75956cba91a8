use crate::world::{World, message};
use std::time::Instant;
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zz() {
    let world = World::start().await.unwrap();
    let mut client = world.messages().await.unwrap();
    let mut t = vec![];
    for n in 0..300 {
        let b = Instant::now();
        client.send(world.anna.request(message(&format!("quiet {n}")))).await.unwrap();
        t.push(b.elapsed());
    }
    t.sort();
    eprintln!("send p50 {:?} p95 {:?}", t[150], t[285]);
    let mut t = vec![];
    for n in 0..200 {
        let b = Instant::now();
        let mut s = client
            .stream(world.anna.request({
                let mut m = message(&format!("x {n}"));
                m.session = format!("s{}", n % 10);
                m
            }))
            .await
            .unwrap()
            .into_inner();
        while let Some(_e) = s.message().await.unwrap() {}
        t.push(b.elapsed());
    }
    t.sort();
    eprintln!("stream p50 {:?} p95 {:?}", t[100], t[190]);
    let mut t = vec![];
    for n in 0..200 {
        let b = Instant::now();
        world.say(&world.anna, &format!("u{}", n % 10), "hi").await.unwrap();
        t.push(b.elapsed());
    }
    t.sort();
    eprintln!("chat p50 {:?} p95 {:?}", t[100], t[190]);
}
